"""Which variables of an instance get a secret, and whether they may.

A create names its caller's secrets as it likes. A config.json names them only where the instance's owner wrote it,
or the operator: else the author of any environment could ask for a user's key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ...base import masks
from ...base.config import Project
from ...base.errors import AEnvError, InvalidRequest
from ...base.models import AskedVariables, secrets_in
from ...engines.base import Address, Engine, InstanceSpec
from ..serving.accounts import LOCAL
from ..serving.named_secrets import Secrets, owner_key


@dataclass(frozen=True)
class GivenSecrets:
    """The values of the variables that hold secrets."""

    values: Mapping[str, str] = field(default_factory=dict)
    """By variable."""
    names: tuple[str, ...] = ()
    """Of the secrets."""

    @property
    def variables(self) -> Mapping[str, str]:
        """Those of an instance that has them, and knows which of its variables they are."""
        return {**self.values, masks.NAMES: ",".join(self.values)} if self.values else {}


NO_SECRETS = GivenSecrets()


async def resolve(
    secrets: Secrets, asked: AskedVariables, project: Project, owner: str | None, account: str | None
) -> GivenSecrets:
    """The secrets of an instance of `owner`, made with `account`. InvalidRequest says which one cannot be had."""
    named, declared = secrets_in(asked), project.deploy.environment_variables.secrets
    if not named and not declared:
        return NO_SECRETS
    declared = {variable: name for variable, name in declared.items() if variable not in asked}
    for variable, name in declared.items():
        if not _is_trusted(project, owner if account else LOCAL.user):
            hint = f'{{"{variable}": {{"secret": "{name}"}}}}'
            raise InvalidRequest(
                f"field 'environment_variables.{variable}': environment '{project.ref}' asks for your secret "
                f"{name!r}, and was not pushed by you; if it may have it, say so in the create: {hint}"
            )
    wanted = {**declared, **named}
    found = await secrets.values(owner_key(owner, account), wanted.values())
    for variable, name in wanted.items():
        if name not in found:
            raise InvalidRequest(
                f"field 'environment_variables.{variable}': there is no secret {name!r}; "
                f"make it with 'aenv secret set {name}'"
            )
    values = {variable: found[name] for variable, name in wanted.items()}
    return GivenSecrets(values, tuple(sorted(found)))


async def masked_create(engine: Engine, spec: InstanceSpec) -> Address:
    """`engine.create(spec)`; what an instance printed last, or says of its tools, shows none of its secrets."""
    hidden = masks.of(spec.environment_variables)
    if not hidden:
        return await engine.create(spec)
    try:
        address = await engine.create(spec)
    except AEnvError as error:
        error.message = hidden.text(error.message)
        error.args = (error.message,)
        raise
    return replace(address, tools=hidden.value(address.tools))


def _is_trusted(project: Project, user: str | None) -> bool:
    """Whether the config.json is the operator's or the user's own: also not one of another who may push there."""
    if not project.is_published:
        return True
    return user is not None and project.owner == user == project.pushed_by
