"""Requests and replies between client, gateway and hub: shapes only.

The published client reads the same objects with its own models, so a required string is never null.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field


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
    created_at: datetime
    updated_at: datetime


class EnvInstance(BaseModel):
    """An instance as create, get and list describe it. Fields below `labels` are ours."""

    model_config = ConfigDict(extra="ignore")

    id: str
    env: Env | None = None
    status: str
    created_at: str = ""
    updated_at: str = ""
    ip: str | None = None
    ttl: str = ""
    owner: str | None = None
    labels: dict[str, str] | None = None
    expires_at: str | None = None
    reason: str | None = None
    engine: str | None = None
    isolation: list[str] | None = None
    mcp_url: str | None = None
    token: str | None = None
    tools: list[dict[str, Any]] | None = None


class CreateInstance(BaseModel):
    """The body of `POST /env-instance` and `PUT /env-instance/{id}`; unknown keys are ignored."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True)

    env_name: str = Field(validation_alias=AliasChoices("envName", "env_name"), serialization_alias="envName")
    datasource: str = ""
    ttl: str | None = None
    environment_variables: dict[str, str] = Field(default_factory=dict)
    arguments: list[str] = Field(default_factory=list)
    owner: str | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    mount_points: list[dict[str, Any]] | None = None
    init_command: str | None = None
    resources: dict[str, str] | None = None


class EnvService(BaseModel):
    """A service as create, get and list describe it."""

    model_config = ConfigDict(extra="ignore")

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


class CreateService(BaseModel):
    """The body of `POST /env-service`."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True)

    env_name: str = Field(validation_alias=AliasChoices("envName", "env_name"), serialization_alias="envName")
    service_name: str | None = None
    replicas: int = 1
    environment_variables: dict[str, str] | None = None
    owner: str | None = None
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
    """The body of `PUT /env-service/{id}`."""

    replicas: int | None = None
    image: str | None = None
    environment_variables: dict[str, str] | None = None


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
