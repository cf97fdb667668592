"""`AEnvSchedulerClient`: the published low-level client of the control routes, on top of `Api`."""

from __future__ import annotations

import asyncio
from typing import Any

from ..base import models, wire
from ..base.errors import EnvironmentError, NetworkError
from .address import control_origin
from .api import Api
from .services import Services


class AEnvSchedulerClient:
    """Instances and services of a gateway. Connect first, or use it as a context manager."""

    def __init__(
        self, base_url: str, timeout: float = 30.0, max_retries: int = 3, api_key: str | None = None
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self.timeout = timeout
        self.max_retries = max_retries
        self.api_key = api_key
        self._api: Api | None = None

    async def __aenter__(self) -> AEnvSchedulerClient:
        await self.connect()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def connect(self) -> None:
        origin = control_origin(self.base_url)
        self._api = Api(origin, api_key=self.api_key, timeout=self.timeout, max_retries=self.max_retries)

    async def close(self) -> None:
        api, self._api = self._api, None
        if api:
            await api.close()

    def _connected(self) -> Api:
        if self._api is None:
            raise NetworkError("Client not connected")
        return self._api

    def _services(self) -> Services:
        return Services(self._connected())

    async def create_env_instance(
        self,
        name: str,
        datasource: str = "",
        ttl: str = "",
        environment_variables: dict[str, str] | None = None,
        arguments: list[str] | None = None,
        owner: str | None = None,
        labels: dict[str, str] | None = None,
        mount_points: list[dict[str, Any]] | None = None,
    ) -> models.EnvInstance:
        body = models.CreateInstance(
            env_name=name,
            datasource=datasource,
            ttl=ttl or None,
            environment_variables=environment_variables or {},
            arguments=arguments or [],
            owner=owner,
            labels=labels or {},
            mount_points=mount_points,
        ).model_dump(by_alias=True, exclude_none=True)
        return models.EnvInstance.model_validate(await self._connected().call("POST", "/env-instance", body))

    async def get_env_instance(self, instance_id: str) -> models.EnvInstance:
        return models.EnvInstance.model_validate((await self._connected().get_instance(instance_id)).sent)

    async def list_env_instances(
        self, pool_name: str | None = None, status: wire.EnvStatus | None = None
    ) -> list[models.EnvInstance]:
        """The instances of one environment (`pool_name`), or all; only those with `status` if given."""
        listed = await self._connected().list_instances(pool_name or "*")
        instances = [models.EnvInstance.model_validate(item.sent) for item in listed]
        return [instance for instance in instances if status is None or instance.status == status]

    async def delete_env_instance(self, instance_id: str) -> bool:
        await self._connected().delete_instance(instance_id)
        return True

    async def presign_url(self, instance_id: str, port: int, expiration_time_in_minutes: float = 5) -> str:
        """A short-lived URL of a port inside the instance, where the engine can open one."""
        return await self._connected().presign_url(instance_id, port, expiration_time_in_minutes)

    async def wait_for_status(
        self,
        instance_id: str,
        target_status: wire.EnvStatus,
        timeout: float = 300.0,
        check_interval: float = 2.0,
    ) -> models.EnvInstance:
        """Look every `check_interval` seconds until the instance has the status. (The published way: it polls.)"""
        async with asyncio.timeout(timeout):
            while True:
                instance = await self.get_env_instance(instance_id)
                if instance.status == target_status:
                    return instance
                if instance.status == wire.EnvStatus.FAILED:
                    raise EnvironmentError(
                        f"instance {instance_id!r} failed: {instance.reason or 'no reason given'}"
                    )
                await asyncio.sleep(check_interval)

    async def create_env_service(
        self,
        name: str,
        service_name: str | None = None,
        replicas: int = 1,
        environment_variables: dict[str, str] | None = None,
        owner: str | None = None,
        pvc_name: str | None = None,
        mount_path: str | None = None,
        storage_size: str | None = None,
        port: int | None = None,
        cpu_request: str | None = None,
        cpu_limit: str | None = None,
        memory_request: str | None = None,
        memory_limit: str | None = None,
        ephemeral_storage_request: str | None = None,
        ephemeral_storage_limit: str | None = None,
    ) -> models.EnvService:
        body = models.CreateService(
            env_name=name,
            service_name=service_name,
            replicas=replicas,
            environment_variables=environment_variables,
            owner=owner,
            pvc_name=pvc_name,
            mount_path=mount_path,
            storage_size=storage_size,
            port=port,
            cpu_request=cpu_request,
            cpu_limit=cpu_limit,
            memory_request=memory_request,
            memory_limit=memory_limit,
            ephemeral_storage_request=ephemeral_storage_request,
            ephemeral_storage_limit=ephemeral_storage_limit,
        ).model_dump(by_alias=True, exclude_none=True)
        return models.EnvService.model_validate((await self._services().create(body)).sent)

    async def get_env_service(self, service_id: str) -> models.EnvService:
        return models.EnvService.model_validate((await self._services().get(service_id)).sent)

    async def list_env_services(self, env_name: str | None = None) -> list[models.EnvService]:
        listed = await self._services().list(env_name or "*")
        return [models.EnvService.model_validate(item.sent) for item in listed]

    async def delete_env_service(self, service_id: str, delete_storage: bool = False) -> bool:
        await self._services().delete(service_id, delete_storage=delete_storage)
        return True

    async def update_env_service(
        self,
        service_id: str,
        replicas: int | None = None,
        image: str | None = None,
        environment_variables: dict[str, str] | None = None,
        version: str | None = None,
    ) -> models.EnvService:
        update = models.UpdateService(
            replicas=replicas, image=image, environment_variables=environment_variables, version=version
        ).model_dump(exclude_none=True)
        return models.EnvService.model_validate((await self._services().update(service_id, update)).sent)
