"""The only place where an `InstanceSpec` is made: of instances, of spare instances and of replicas of services.

Not here: whether a request may have what it asks for (`admission.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...base import composition
from ...base.composition import NamedPart
from ...base.config import Network, Project
from ...engines.base import STORAGE_PLACE, InstanceSpec, LazySidecar, ModelEndpoint, ResourceLimits
from .catalog import PreparedProject
from .secret_variables import NO_SECRETS, GivenSecrets

_SPARE_ID = "spare"  # an engine gives each spare instance the id of the instance that it becomes


@dataclass(frozen=True)
class CheckedRequest:
    """What a request may have of an environment; the same for every instance of a batch."""

    project: Project
    arguments: tuple[str, ...]
    variables: Mapping[str, str]
    """Those of the request that are not secrets."""
    limits: ResourceLimits
    network: Network
    model: ModelEndpoint | None
    data: Path | None
    folders: Mapping[str, Path]
    sidecar: str | LazySidecar
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Conditions:
    """What does not follow from a request: whose the instance is, and how this gateway starts it."""

    start_timeout: float
    keep_history: bool
    tenant: str = ""
    owner: str = ""
    secrets: GivenSecrets = NO_SECRETS
    service: str = ""
    """The id of the service that it is a replica of."""
    storage: Path | None = None
    storage_place: str = STORAGE_PLACE
    works_in: str = ""
    """The id of the instance whose workspace it works in, in place of one of its own."""
    ttl: float | None = None


def instance_spec(
    id: str, checked: CheckedRequest, prepared: PreparedProject, conditions: Conditions
) -> InstanceSpec:
    """What the engine is asked to make, complete."""
    project, deploy = checked.project, checked.project.deploy
    return InstanceSpec(
        id=id,
        environment=str(project.ref),
        project=project.path,
        environment_variables={
            # Published clients set these two; environments that read them must not depend on the client.
            "envNAME": project.name,
            "envversion": project.version,
            **deploy.environment_variables.texts,
            **checked.variables,
            **conditions.secrets.variables,
            **({"AENV_SERVICE_ID": conditions.service} if conditions.service else {}),
            **({composition.VARIABLE: _parts(project)} if project.uses else {}),
        },
        arguments=checked.arguments,
        start_timeout=conditions.start_timeout,
        call_timeout=deploy.call_timeout,
        python=prepared.python,
        requirements=prepared.requirements,
        storage=conditions.storage,
        storage_place=conditions.storage_place,
        works_in=conditions.works_in,
        shares_workspace=any(part.shares_workspace for part in project.uses),
        keep_history=conditions.keep_history,
        limits=checked.limits,
        network=checked.network,
        model=checked.model,
        uses_environments=bool(project.grants or project.uses) and not conditions.service,
        image=project.image,
        data=checked.data,
        data_variable=project.data.variable if checked.data and project.data else "",
        folders=checked.folders,
        sidecar=checked.sidecar,
        preload=deploy.preload,
        tenant=conditions.tenant,
        owner=conditions.owner,
        isolation=deploy.isolation,
        pod_template=deploy.pod_template,
        labels=checked.labels,
        ttl=conditions.ttl,
    )


def _parts(project: Project) -> str:
    return composition.spell(NamedPart(part.name, bool(part.prefix)) for part in project.uses)


def spare_spec(spec: InstanceSpec) -> InstanceSpec:
    """The spec of spare instances that `spec` can be filled in for: without what differs between instances."""
    return replace(
        spec,
        id=_SPARE_ID,
        environment_variables={},
        arguments=(),
        model=None,
        uses_environments=False,
        works_in="",
        shares_workspace=False,
        owner="",
        labels={},
        ttl=None,
    )
