"""Requests and replies between client, gateway and hub: shapes only.

The published client reads the same objects with its own models, so a required string is never null.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from .leasing import Grant

DIGEST_PATTERN = r"^[0-9a-f]{64}$"

MAX_VARIABLES = 1000

Access = Literal["private", "team", "public"]


class SecretReference(BaseModel):
    """A secret of the caller's, named where the value of a variable could stand."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    secret: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]{0,127}$")


class ModelReference(BaseModel):
    """The model that an instance may ask: its URL, and a key, which the instance does not get."""

    url: str = Field(max_length=2048)
    key: str = Field("", max_length=4096, repr=False)


AskedVariables = Mapping[str, str | SecretReference]
"""The variables of a create."""


def texts_in(variables: AskedVariables) -> dict[str, str]:
    """Those whose values are said."""
    return {name: value for name, value in variables.items() if isinstance(value, str)}


def secrets_in(variables: AskedVariables) -> dict[str, str]:
    """The names of secrets, by the variables that they are for."""
    return {name: value.secret for name, value in variables.items() if isinstance(value, SecretReference)}


class Env(BaseModel):
    """An environment as the hub describes it."""

    id: str
    name: str
    description: str = ""
    version: str
    tags: list[str] | None = None
    code_url: str = ""
    status: int = 6
    artifacts: list[dict[str, str]] | None = None
    build_config: dict[str, Any] | None = None
    test_config: dict[str, Any] | None = None
    deploy_config: dict[str, Any] | None = None
    eval_only: bool | None = None  # what agents do there must not become training data
    created_at: datetime
    updated_at: datetime


class Changes(BaseModel):
    """How a version differs from the one before it: names `added`, `removed`, `changed`, at most 100 of each."""

    files: dict[str, list[str]] = Field(default_factory=dict)
    tools: dict[str, list[str]] = Field(default_factory=dict)


class EnvDetails(Env):
    """An environment with everything that the hub knows about it."""

    owner: str | None = None
    """None: a folder on the server's own disk."""
    access: str = "team"
    digest: str | None = None
    """The sha256 of its bundle."""
    code_digest: str | None = None
    """Of a folder on the server's own disk: the sha256 of the bundle that it would be."""
    size_bytes: int | None = None
    pushed_by: str | None = None
    readme: str = ""
    tools: list[dict[str, Any]] = Field(default_factory=list)
    functions: list[dict[str, Any]] = Field(default_factory=list)
    rewards: list[dict[str, Any]] = Field(default_factory=list)
    dependencies: dict[str, list[str]] = Field(default_factory=dict)
    previous: str | None = None
    """The version before it, when it was pushed."""
    changes: Changes | None = None


class EnvVersion(BaseModel):
    """A line of an environment's history."""

    version: str
    status: int
    digest: str | None = None
    pushed_by: str | None = None
    created_at: datetime
    updated_at: datetime
    previous: str | None = None
    changes: Changes | None = None


class EnvVersions(BaseModel):
    """An environment's history, newest version first. Only those who may push see readers and writers."""

    name: str
    owner: str | None = None
    access: str = "team"
    readers: list[str] = Field(default_factory=list)
    writers: list[str] = Field(default_factory=list)
    versions: list[EnvVersion] = Field(default_factory=list)


class EnvironmentSurface(BaseModel):
    """What an environment offers, as its author's tools say it."""

    tools: list[dict[str, Any]] | None = Field(None, max_length=1000)
    functions: list[dict[str, Any]] | None = Field(None, max_length=1000)
    rewards: list[dict[str, Any]] | None = Field(None, max_length=1000)


class Dependencies(BaseModel):
    """What an environment needs: Python packages, and other environments."""

    requirements: list[str] | None = Field(None, max_length=1000)
    environments: list[str] | None = Field(None, max_length=100)


class PushEnvironment(BaseModel):
    """The body of `POST /env` and `PUT /env/{name}/{version}`; unknown keys are ignored.

    What a bundle says itself need not be sent: description, tags and the configs come from its config.json.
    """

    model_config = ConfigDict(populate_by_name=True, alias_generator=to_camel)

    name: str | None = None
    version: str | None = None
    description: str | None = Field(None, max_length=10_000)
    tags: list[Annotated[str, Field(max_length=100)]] | None = Field(None, max_length=50)
    build_config: dict[str, Any] | None = None
    test_config: dict[str, Any] | None = None
    deploy_config: dict[str, Any] | None = None
    artifacts: list[dict[str, Any]] | None = Field(None, max_length=100)
    status: str | int | None = None
    code_url: str | None = Field(None, max_length=2000)
    bundle: str | None = Field(None, pattern=DIGEST_PATTERN)
    readme: str | None = None
    metadata: EnvironmentSurface | None = None
    dependencies: Dependencies | None = None
    access: Access | None = None


class AccessPolicy(BaseModel):
    """The body of `PUT /env/{name}/access`, where what is left out stays; and its reply."""

    access: Access | None = None
    owner: str | None = Field(None, min_length=1, max_length=128)
    readers: list[Annotated[str, Field(min_length=1, max_length=128)]] | None = Field(None, max_length=100)
    writers: list[Annotated[str, Field(min_length=1, max_length=128)]] | None = Field(None, max_length=100)


class AuditEntry(BaseModel):
    """Who did what to which environment."""

    at: str
    user: str
    account: str | None = None
    action: str
    environment: str
    digest: str | None = None


class AnnounceBundle(BaseModel):
    """The body of `POST /bundles`."""

    model_config = ConfigDict(populate_by_name=True, alias_generator=to_camel)

    digest: str = Field(pattern=DIGEST_PATTERN)
    size_bytes: int = Field(gt=0)


class AnnouncedBundle(BaseModel):
    """What the hub has of a bundle: all of it, or what comes before `offset`."""

    exists: bool
    offset: int


class ReceivedPart(BaseModel):
    """Where in the bundle the next part begins, or that this was the last one."""

    offset: int
    complete: bool


class SetImage(BaseModel):
    """The body of `POST /env/{name}/{version}/aci_trigger`."""

    image: str = Field(min_length=1, max_length=1000)


class EnvInstance(BaseModel):
    """An instance as create, get and list describe it. Fields below `labels` are ours."""

    id: str
    env: Env | None = None
    status: str
    created_at: str = ""
    updated_at: str = ""
    ip: str | None = None
    ttl: str = ""
    owner: str | None = None
    labels: dict[str, str] | None = None
    parent: str | None = None
    """The instance that made it, and with which it ends."""
    expires_at: str | None = None
    reason: str | None = None
    engine: str | None = None
    isolation: list[str] | None = None
    """What keeps it apart from the host; empty when nothing does."""
    not_enforced: list[str] | None = None
    """Which of its limits its host cannot enforce, each with the reason."""
    root: str | None = None
    """Which root file system it has."""
    frozen: bool | None = None
    """Whether it waits, without CPU, for its next call."""
    mcp_url: str | None = None
    socket: str | None = None
    """Its unix socket, for a client on the gateway's host that runs as the gateway's user."""
    lease: Grant | None = None
    """Of a create whose client holds its leases here, and said so."""
    token: str | None = None
    tools: list[dict[str, Any]] | None = None


class CreateInstance(BaseModel):
    """The body of `POST /env-instance` and `PUT /env-instance/{id}`; unknown keys are ignored."""

    model_config = ConfigDict(populate_by_name=True)

    env_name: str = Field(
        validation_alias=AliasChoices("envName", "env_name"), serialization_alias="envName", max_length=512
    )
    datasource: str = Field("", max_length=4096)
    ttl: str | None = Field(None, max_length=64)
    environment_variables: dict[str, str | SecretReference] = Field(default_factory=dict, max_length=MAX_VARIABLES)
    """By name: a value, or the name of a secret."""
    arguments: list[str] = Field(default_factory=list, max_length=1000)
    owner: str | None = Field(None, max_length=256)
    labels: dict[str, str] = Field(default_factory=dict, max_length=64)
    mount_points: list[dict[str, Any]] | None = Field(None, max_length=64)
    init_command: str | None = Field(None, max_length=64 << 10)
    resources: dict[str, str | int | float] | None = Field(None, max_length=16)
    """Less than the environment has, or more if it allows that: cpu, memory, ephemeralStorage, pids, openFiles,
    gpu."""
    network: str | dict[str, list[str]] | None = None
    """Less than the environment may reach: "none", "full", or {"egress": ["host:443"]}."""
    model: ModelReference | None = None
    """A model that it may ask besides, by a relay; one that the operator allows."""
    idle_timeout: str | None = Field(None, max_length=64)
    """How long it may go without a call before it is ended; not limited unless its environment says so."""
    wait: str | None = Field(None, max_length=64)
    """How long to wait for room when a quota is used up."""
    self_check: bool = True
    """Whether its rewards wait for the self-check of its task, where its environment has one."""


class CreateInstances(CreateInstance):
    """The body of `POST /env-instances`: several of the same, all or none."""

    count: int = Field(ge=1, le=1000)
    ids: list[str] | None = Field(None, max_length=1000)
    """Their ids, as many as `count`, where the client chooses them: it can ask for each before the reply."""


class Renew(BaseModel):
    """The body of `PUT /env-instance/{id}/ttl`."""

    ttl: str = Field("", max_length=64)


class InstanceUsage(BaseModel):
    """What one instance uses; numbers that its engine cannot tell are null."""

    id: str
    env: str
    owner: str | None = None
    status: str
    service: str | None = None
    """Whose replica it is."""
    frozen: bool | None = None
    cpu_seconds: float | None = None
    """Since it was made."""
    memory_bytes: int | None = None
    processes: int | None = None
    calls: int | None = None
    """How many are under way, as far as the answering gateway knows; a lease counts as one."""
    created_at: str
    expires_at: str | None = None


class Usage(BaseModel):
    """The reply of `GET /env-instances/usage`."""

    at: str
    """When it was so, by the clock of `created_at`."""
    instances: list[InstanceUsage]
    warm: dict[str, int] = Field(default_factory=dict)
    """How many spare instances are ready, by environment; for administrators."""


class KeepWarm(BaseModel):
    """The body of `PUT /env/{name}/{version}/warm`."""

    count: int = Field(ge=0, le=10_000)


class WarmPool(BaseModel):
    """The spare instances of an environment."""

    environment: str
    count: int
    """How many were asked for."""
    kept: int
    """How many shall be there: fewer where memory does not hold all, more while many are created."""
    ready: int
    """How many are there now."""


class RunCommand(BaseModel):
    """The body of `POST /env-instance/{id}/exec`: words, or a line for the shell."""

    command: str | list[str] = Field(min_length=1)
    timeout: float | None = Field(None, gt=0)
    stdin: str = ""


class PresignUrl(BaseModel):
    """The body of `POST /env-instance/{id}/presign-url`."""

    port: int = Field(ge=1, le=65535)
    expiration_time_in_minutes: float = Field(5.0, gt=0, le=7 * 24 * 60)


class EnvService(BaseModel):
    """A service as create, get and list describe it. `reason` is ours."""

    id: str
    env: Env | None = None
    status: str
    created_at: str = ""
    updated_at: str = ""
    replicas: int
    available_replicas: int
    service_url: str | None = None
    owner: str | None = None
    environment_variables: dict[str, str] | None = None
    pvc_name: str | None = None
    mount_path: str | None = None
    """Where its replicas see their storage, where that was asked for."""
    port: int | None = None
    """Where its replicas are called, where that was asked for."""
    instances: list[str] = Field(default_factory=list)
    """The ids of its replicas."""
    reason: str | None = None
    """Why it does not run, or not as it should."""
    not_enforced: tuple[str, ...] = ()
    """Which of the amounts that were asked for do not hold, each with the reason."""


class CreateService(BaseModel):
    """The body of `POST /env-service`."""

    model_config = ConfigDict(populate_by_name=True)

    env_name: str = Field(validation_alias=AliasChoices("envName", "env_name"), serialization_alias="envName")
    service_name: str | None = None
    replicas: int = 1
    environment_variables: dict[str, str | SecretReference] | None = Field(None, max_length=MAX_VARIABLES)
    owner: str | None = Field(None, max_length=256)
    pvc_name: str | None = None
    mount_path: str | None = None
    storage_size: str | None = None
    port: int | None = None
    cpu_request: str | None = None
    cpu_limit: str | None = None
    memory_request: str | None = None
    memory_limit: str | None = None
    ephemeral_storage_request: str | None = None
    ephemeral_storage_limit: str | None = None


class UpdateService(BaseModel):
    """The body of `PUT /env-service/{id}`: what is left out stays; variables are added to those it has."""

    replicas: int | None = None
    image: str | None = None
    """`name@version`, or an image whose tag is the version."""
    version: str | None = None
    environment_variables: dict[str, str | SecretReference] | None = Field(None, max_length=MAX_VARIABLES)


class EnvInstanceListResponse(BaseModel):
    """A list of instances, in the published client's form."""

    items: list[EnvInstance]


class EnvServiceListResponse(BaseModel):
    """A list of services, in the published client's form."""

    items: list[EnvService]


class Address(BaseModel):
    """A network address, in the published client's form."""

    ip: str
    port: int
    type: str = "network"
    session_id: str | None = None


class APIResponse(BaseModel):
    """The envelope of control and hub replies."""

    model_config = ConfigDict(populate_by_name=True)

    success: bool = True
    code: int | None = None
    message: str | None = None
    data: Any = None
    error_code: int | None = Field(None, alias="errorCode")
    error_message: str | None = Field(None, alias="errorMessage")

    def get_error_message(self) -> str:
        return self.message or self.error_message or "Unknown error"


class APIError(BaseModel):
    """An error, in the published client's form."""

    code: str
    message: str
    reason: str | None = None
