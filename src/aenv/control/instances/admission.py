"""What a request to create may ask for, and what follows from it: what it may have, and the time to live.

Not here: the engine's spec (`specs.py`).
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field

from ...base import quantities, refs, wire
from ...base.config import NetworkKind, Project, is_secret_variable
from ...base.errors import InvalidRequest, of_field
from ...base.models import CreateInstance, CreateInstances, Renew, texts_in
from ...base.refs import Ref
from ...base.wire import DEFAULT_TTL
from ..serving import routes
from ..serving.accounts import Caller
from .datasources import Offered, data_and_sidecar, declared_data, declared_folders
from .declared_sidecar import lazy_sidecar
from .model_access import ModelRules, model_for
from .networks import network_for
from .records import Record, describe_environment
from .resources import limits_for
from .specs import CheckedRequest

logger = logging.getLogger("aenv.control.instances.admission")

MAX_TTL = 366 * 86400.0
MAX_WAIT = 3600.0
_ID = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")
_RANDOM_PART = 20  # characters: an id is the key to its instance, so it must not be guessed
_TEMPLATE = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,62}\Z")
_VARIABLE = re.compile(r"[^=\0]+\Z")
_MAX_STRING_BYTES = 128 << 10  # Linux takes no longer argument or variable
_MAX_LABEL_BYTES = 256  # of a name and its value: each is a list of the store's, and a counter
_POD_TEMPLATES = {"default", "singlecontainer", "dualcontainer"}


@dataclass(frozen=True)
class Rules(Offered):
    """What the operator of a gateway allows and offers."""

    network: NetworkKind = "full"
    self_check: bool = True
    """Whether rewards wait for the self-check of their task, where the environment has one."""
    models: ModelRules = field(default_factory=ModelRules)
    own_templates: bool = False
    """Whether the engine knows templates of Pods beside the published ones, and says which."""


DEFAULT_RULES = Rules()


def parse(body: bytes) -> CreateInstance:
    """Read a body. InvalidRequest names the field that is wrong, and never repeats a value."""
    return _checked(routes.parse(CreateInstance, body))


def parse_many(body: bytes) -> tuple[CreateInstance, list[str]]:
    """A request for several instances, and their ids."""
    request = routes.parse(CreateInstances, body)
    _checked(request)
    name = ref_of(request).name
    ids = [wire.new_instance_id(name) for _ in range(request.count)] if request.ids is None else request.ids
    if len({check_id(id) for id in ids}) != request.count:
        raise InvalidRequest(f"field 'ids': must be {request.count} different ids, as many as 'count'")
    return CreateInstance.model_validate(request.model_dump(exclude={"count", "ids"})), ids


def _checked(request: CreateInstance) -> CreateInstance:
    check_strings(request)
    wait_of(request)
    for label, value in request.labels.items():
        if "=" in label:
            raise InvalidRequest(f"field 'labels': {label[:100]!r} must not contain '='")
        if len(label.encode()) + len(value.encode()) > _MAX_LABEL_BYTES:
            message = f"{label[:100]!r} and its value are longer than {_MAX_LABEL_BYTES} bytes"
            raise InvalidRequest(f"field 'labels': {message}")
    return request


def check_id(id: str) -> str:
    """Return `id` if a client may choose it."""
    if not _ID.match(id) or len(id.rpartition("-")[2]) < _RANDOM_PART:
        raise InvalidRequest(
            f"bad instance id {id!r}; use at most 63 lower-case letters, digits and '-', "
            f"ending in at least {_RANDOM_PART} random characters"
        )
    return id


def ttl_of(request: CreateInstance, project: Project) -> float:
    """Seconds: what the request says, else the environment's own, else the default."""
    if request.ttl:
        return check_ttl(request.ttl)
    own = project.deploy.ttl
    return check_ttl(own if own is not None else DEFAULT_TTL, "deployConfig.ttl")


def parse_ttl(body: bytes) -> float:
    """The seconds that a request to renew asks for: `{"ttl": "1h"}`."""
    value = routes.parse(Renew, body).ttl
    if not value:
        raise InvalidRequest("field 'ttl': give the time to live from now, as in '1h'")
    return check_ttl(value)


def check_ttl(value: str | float, field: str = "ttl") -> float:
    """Seconds; InvalidRequest when an instance cannot live for that time."""
    with of_field(field):
        ttl = quantities.seconds(value)
        if not 0 < ttl <= MAX_TTL:
            raise InvalidRequest(f"{value!r} is not between 1ms and {MAX_TTL / 86400:g}d")
        return ttl


def wait_of(request: CreateInstance) -> float:
    """Seconds for which a request wants to wait for room."""
    with of_field("wait"):
        wait = quantities.seconds(request.wait) if request.wait else 0.0
        if wait > MAX_WAIT:
            raise InvalidRequest(f"{request.wait!r} is longer than {MAX_WAIT / 60:g}m")
        return wait


def ref_of(request: CreateInstance) -> Ref:
    """Which environment it is about."""
    with of_field("envName"):
        return refs.parse(request.env_name)


def owner_of(request: CreateInstance, caller: Caller) -> str | None:
    """Whose it will be: the caller's, unless an administrator, or anybody without accounts, names another."""
    if caller.is_admin and (request.owner or caller.account is None):
        return request.owner
    return caller.user


def check(request: CreateInstance, project: Project, rules: Rules) -> CheckedRequest:
    """What the request may have. Refuses what we do not have or do not allow."""
    _check_deploy(project, rules)
    checked = check_request(request, project, rules)
    _warn_of_unused(request)
    return checked


def complete(record: Record, request: CreateInstance, project: Project, rules: Rules) -> None:
    """Fill in what follows from the environment."""
    limits = limits_for(request, project)
    record.environment = str(project.ref)
    record.code = project.path.name
    record.env = describe_environment(project)
    record.ttl = ttl_of(request, project)
    record.idle_timeout = _idle_timeout(request, project)
    record.cpu_milli = round(1000 * (limits.cpus or 0))
    record.memory_bytes = limits.memory_bytes or 0
    record.freeze_after = project.deploy.freeze_after
    record.reclaim = project.deploy.reclaim
    if project.self_check and not record.self_check:
        record.self_check = "needed" if request.self_check and rules.self_check else "skipped"
    record.note("requested")


def _idle_timeout(request: CreateInstance, project: Project) -> float | None:
    if request.idle_timeout:
        return check_ttl(request.idle_timeout, "idle_timeout")
    own = project.deploy.idle_timeout
    return check_ttl(own, "deployConfig.idleTimeout") if own else None


def check_request(request: CreateInstance, project: Project, rules: Rules) -> CheckedRequest:
    """What the request may have of the environment; InvalidRequest or Forbidden when it asks for more."""
    data, sidecar = data_and_sidecar(request.datasource, project, rules.data_roots)
    given = texts_in(request.environment_variables)  # a secret names no folder
    data = data or declared_data(given, project, rules)
    own = project.deploy.environment_variables.texts
    return CheckedRequest(
        project=project,
        arguments=tuple(request.arguments),
        variables=given,
        limits=limits_for(request, project),
        network=network_for(request, project, rules.network),
        model=model_for(request, rules.models),
        data=data,
        folders=declared_folders(given, project, rules),
        sidecar=sidecar or lazy_sidecar(project, {**own, **given}, data),
        labels=request.labels,
    )


def check_strings(request: CreateInstance) -> None:
    """InvalidRequest when Linux would not take an argument or a variable."""
    for index, argument in enumerate(request.arguments):
        _check_string(f"arguments.{index}", argument)
    for name, value in request.environment_variables.items():
        if not _VARIABLE.match(name):
            raise InvalidRequest(f"field 'environment_variables': {name[:100]!r} is not a name for a variable")
        if isinstance(value, str):
            _check_string(f"environment_variables.{name[:100]}", f"{name}={value}")
        elif not is_secret_variable(name):
            raise InvalidRequest(
                f"field 'environment_variables': {name[:100]!r} cannot hold a secret; use letters, digits and '_'"
            )


def _check_string(field: str, text: str) -> None:
    if "\0" in text:
        raise InvalidRequest(f"field {field!r}: must not contain a NUL character")
    if len(text.encode()) >= _MAX_STRING_BYTES:
        raise InvalidRequest(f"field {field!r}: is longer than {_MAX_STRING_BYTES >> 10} KiB")


def _check_deploy(project: Project, rules: Rules) -> None:
    system = project.deploy.os
    if system.lower() != "linux":
        raise InvalidRequest(f"environment '{project.ref}' asks for os {system!r}; only 'linux' is available")
    template = project.deploy.pod_template
    if template.lower() in _POD_TEMPLATES or (rules.own_templates and _TEMPLATE.match(template)):
        return
    known = "a name" if rules.own_templates else "'singleContainer' or 'dualContainer'"
    raise InvalidRequest(f"environment '{project.ref}' asks for podTemplate {template!r}; use {known}")


def _warn_of_unused(request: CreateInstance) -> None:
    for name in ("mount_points", "init_command"):
        if getattr(request, name):
            logger.warning("field '%s' was accepted, and has no effect with this engine", name)
