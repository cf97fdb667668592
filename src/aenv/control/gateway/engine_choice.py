"""The engine of a gateway, as its settings name it: the only file that imports one."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

from ...base.errors import InvalidRequest
from ...base.settings import GatewaySettings
from ...engines.base import Engine

_ENGINES = "'native', 'process', 'docker', 'kubernetes' and 'http'"


@contextlib.asynccontextmanager
async def engine_of(settings: GatewaySettings) -> AsyncIterator[Engine]:
    """The engine that the settings name, closed at the end."""
    if settings.engine == "native":
        from ...engines.native.makers import ManyCoreEngine
        from ...isolation.rootfs.resolver import RootfsResolver
        from ...isolation.sandbox.build_run import limited
        from .rootfs_cache import RootfsCache

        # Building is not narrowed to hosts: where instances may not reach everything, it reaches nothing.
        network = settings.allow_network == "full"
        home = settings.home.expanduser()
        with limited(home) as run:
            roots = RootfsResolver(home, run=run, pull=settings.pull, network=network, makes_bases=True)
            async with (
                RootfsCache(roots) as rootfs_cache,
                ManyCoreEngine(
                    settings.home,
                    rootfs_cache.root_of,
                    sidecar_rootfs=roots.image,
                    lazy_sidecar_rootfs=rootfs_cache.lazy_sidecar_rootfs,
                    describe_root=roots.describe,
                ) as engine,
            ):
                yield engine
    elif settings.engine == "process":
        from ...engines.process import ProcessEngine

        yield ProcessEngine(settings.home)
    elif settings.engine == "docker":
        from ...engines.docker.docker_engine import DockerEngine

        async with DockerEngine(
            settings.home,
            settings.docker_host,
            base_image=settings.base_image,
            network=settings.docker_network,
        ) as engine:
            yield engine
    elif settings.engine == "http":
        from ...engines.http_engine import HttpEngine

        if not settings.engine_url:
            raise InvalidRequest("the http engine needs the address of its server; name it with --engine-url")
        async with HttpEngine(settings.home, settings.engine_url) as engine:
            yield engine
    elif settings.engine == "kubernetes":
        async with _kubernetes(settings) as engine:
            yield engine
    else:
        raise InvalidRequest(f"no engine {settings.engine!r}; this gateway has {_ENGINES}")


@contextlib.asynccontextmanager
async def _kubernetes(settings: GatewaySettings) -> AsyncIterator[Engine]:
    try:
        from ...engines.kubernetes.cluster_access import ClusterAccess
        from ...engines.kubernetes.kubernetes_engine import KubernetesEngine
        from ...engines.kubernetes.kubernetes_options import KubernetesOptions
    except ModuleNotFoundError as error:
        package, hint = str(error.name).partition(".")[0], "pip install 'lightkube>=1.0'"
        raise InvalidRequest(f"the kubernetes engine needs the package {package!r}; run: {hint}") from None
    options = KubernetesOptions(
        ClusterAccess(settings.kubeconfig, namespace=settings.kube_namespace or None),
        owner=settings.kube_name,
        templates=settings.kube_templates,
        gateways=settings.kube_gateways,
        storage_class=settings.kube_storage_class,
    )
    if settings.base_image:
        options = replace(options, base_image=settings.base_image)
    async with KubernetesEngine(options) as engine:
        yield engine
