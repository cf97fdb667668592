"""The engines that docs/config.md names for a field are those that honour it, where containers show it.

What a container and a Pod are made of is compared with what they are made of without the field; what an engine can
do at all is asked of its class. No engine of containers takes part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("lightkube", reason="the extra 'kubernetes' is not installed")

from aenv.base.config import Network
from aenv.base.config.deploy import Deploy, ServiceDefaults, SidecarSource
from aenv.base.config.project import Grants, Project, UsedEnvironment
from aenv.base.config.sections import ConfigSection
from aenv.base.errors import Unsupported
from aenv.engines.base import InstanceSpec, LazySidecar, ResourceLimits
from aenv.engines.containers.container_plan import plan
from aenv.engines.containers.sidecar_plan import image_of_sidecar
from aenv.engines.docker import docker_engine
from aenv.engines.docker.container_config import EngineFacts, main_container
from aenv.engines.kubernetes.kubernetes_engine import KubernetesEngine
from aenv.engines.kubernetes.pod_manifest import PodNames, manifest
from aenv.engines.kubernetes.pod_sidecar import add_sidecar
from aenv.engines.kubernetes.pod_templates import PodTemplates

SPEC = InstanceSpec("demo-1", "demo@1.0.0", Path("/p"))
# What the gateway makes of a field that has another value than usual.
SPECS: dict[tuple[type[ConfigSection], str], InstanceSpec] = {
    (Deploy, "cpu"): replace(SPEC, limits=ResourceLimits(cpus=0.5)),
    (Deploy, "memory"): replace(SPEC, limits=ResourceLimits(memory_bytes=1 << 20)),
    (Deploy, "ephemeralStorage"): replace(SPEC, limits=ResourceLimits(storage_bytes=1 << 20)),
    (Deploy, "pids"): replace(SPEC, limits=ResourceLimits(pids=7)),
    (Deploy, "openFiles"): replace(SPEC, limits=ResourceLimits(open_files=7)),
    (Deploy, "gpu"): replace(SPEC, limits=ResourceLimits(gpus=1)),
    (Deploy, "network"): replace(SPEC, network=Network("full")),
    (Deploy, "isolation"): replace(SPEC, isolation="gvisor"),
    (Deploy, "preload"): replace(SPEC, preload=("numpy",)),
    (Deploy, "sidecar"): replace(SPEC, sidecar=LazySidecar()),
    (Deploy, "podTemplate"): replace(SPEC, pod_template="own"),
    (Deploy, "environmentVariables"): replace(SPEC, environment_variables={"A": "1"}),
    (SidecarSource, "dockerfile"): replace(SPEC, sidecar=LazySidecar(Path("/p/Dockerfile"))),
    (SidecarSource, "requirements"): replace(SPEC, sidecar=LazySidecar(requirements=("pytest",))),
}
# What an engine must be able to do. Where it keeps services itself, it is told the size of their storage.
ABILITIES: Mapping[tuple[type[ConfigSection], str], tuple[str, ...]] = {
    (Deploy, "freezeAfter"): ("freeze",),
    (Deploy, "reclaim"): ("freeze",),
    (Deploy, "warmPool"): ("keep_warm",),
    (ServiceDefaults, "storageSize"): ("make_volume", "keep_service"),
    (Project, "grants"): ("lead_to",),
    (Project, "uses"): ("lead_to",),
    (Grants, "calls"): ("lead_to",),
    (UsedEnvironment, "env"): ("lead_to",),
}
ENGINES: dict[str, type] = {"docker": docker_engine.DockerEngine, "kubernetes": KubernetesEngine}


def container(spec: InstanceSpec) -> list[Any]:
    facts = EngineFacts(rootless=False, runtimes=frozenset({"runsc"}))
    docker_engine._refuse(spec, facts)
    return [main_container(plan(spec), spec, facts, user=1000), image_of_sidecar(spec.sidecar, "base")]


def pod(spec: InstanceSpec) -> dict[str, Any]:
    KubernetesEngine._check(cast("Any", None), spec)
    text = "{kind: Pod, apiVersion: v1, metadata: {labels: {own: a}}, spec: {containers: [{name: main}]}}"
    template = PodTemplates({"own.yaml": text}).get(spec.pod_template, is_dual=bool(spec.sidecar))
    made = manifest(template, plan(spec), spec, PodNames("demo-1", "here", ""))
    if spec.sidecar:
        add_sidecar(made, plan(spec), spec, "base")
    return made


MAKES = {"docker": container, "kubernetes": pod}


def named(section: type[ConfigSection], key: str) -> tuple[str, ...]:
    return section.entries()[key][1].engines


@pytest.mark.parametrize("engine", MAKES)
@pytest.mark.parametrize(("section", "key"), SPECS, ids=lambda part: getattr(part, "__name__", part))
def test_a_field_changes_containers_of_the_engines_that_the_page_names_and_no_others(
    section: type[ConfigSection], key: str, engine: str
) -> None:
    try:
        honours = MAKES[engine](SPECS[section, key]) != MAKES[engine](SPEC)
    except Unsupported:
        honours = False
    assert honours == (engine in named(section, key))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("section", "key"), ABILITIES, ids=lambda part: getattr(part, "__name__", part))
def test_a_field_is_honoured_by_the_engines_that_can_do_what_it_asks_for(
    section: type[ConfigSection], key: str, engine: str
) -> None:
    able = any(hasattr(ENGINES[engine], ability) for ability in ABILITIES[section, key])
    assert able == (engine in named(section, key))


def test_every_field_of_single_engines_is_compared() -> None:
    compared = {*SPECS, *ABILITIES}
    alike = {  # by what stands beside them: other names of a limit, and parts of an object that is compared
        *(
            (Deploy, f"{limit}{kind}")
            for limit in ("cpu", "memory", "ephemeralStorage")
            for kind in ("Limit", "Request")
        ),
        *((section, key) for section in (Grants, UsedEnvironment) for key in section.entries()),
        (SidecarSource, "installers"),
        (Deploy, "imagePrefix"),  # the gateway makes an image of it, before an engine is asked
        (ServiceDefaults, "mountPath"),
    }
    everywhere = {"docker", "kubernetes"}
    sections = (Project, Grants, UsedEnvironment, Deploy, ServiceDefaults, SidecarSource)
    assert [
        (section.__name__, key)
        for section in sections
        for key in section.entries()
        if "process" not in named(section, key) or not everywhere <= {*named(section, key)}
        if (section, key) not in compared | alike
    ] == []
