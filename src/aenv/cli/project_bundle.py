"""From a project's folder to its bundle, and to what the bundle's code offers."""

from __future__ import annotations

import asyncio
import re
import socket
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..artifacts import bundles
from ..artifacts.pythons.choosing import requirements_of_project
from ..base import config, settings
from ..base.addresses import Origin
from ..client import code_url
from ..client.api import Api
from ..isolation.sandbox import protocol
from . import output, progress, supervise
from .local_project import changed, other_artifacts, spelled

_LOAD_TIMEOUT = 60.0  # seconds
_MISSING = re.compile(r"ModuleNotFoundError: No module named '([^'.]+)")


@dataclass(frozen=True)
class PackedProject:
    """A bundle, and the project with the config.json that stands in there."""

    project: config.Project
    archive: Path
    bundle: bundles.Bundle

    def __str__(self) -> str:
        many = len(self.bundle.files)
        return (
            f"sha256:{self.bundle.digest[:12]}…, {many} {'file' if many == 1 else 'files'}, "
            f"{output.size(self.bundle.size_bytes)}"
        )


def pack(project: config.Project, work: Path, version: str | None = None) -> PackedProject:
    """Pack a project, or the code that its `codeUrl` names, into the new folder `work`.

    Its config.json tells the version that it is packed as, and not the bundle that an earlier build made: the same
    project gives the same digest before a build and after it.
    """
    url = project.code_url
    folder = code_url.fetch(url, work / "fetched", settings.variables()) if url else project.path
    packed = changed(project, other_artifacts(project, "bundle"), version or "")
    archive = work / "bundle.tar.gz"
    bundle = bundles.pack(folder, archive, {config.FILE_NAME: spelled(packed.raw).encode()})
    return PackedProject(packed, archive, bundle)


async def describe(packed: PackedProject) -> dict[str, Any]:
    """Tools, functions and rewards of a bundle: what its runtime says, started once in a process of its own."""
    path = packed.archive.with_name("unpacked")
    bundles.unpack(packed.archive, path)
    project = replace(packed.project, path=path)
    with progress.lines("installing requirements") as show:
        python, requirements = await requirements_of_project(project, settings.home(), settings.variables(), show)
    with tempfile.TemporaryDirectory(prefix="aenv-load-") as workspace, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{workspace}/socket")
        listener.listen()
        variables = {
            **project.deploy.environment_variables.texts,
            **settings.variables(),
            "AENV_WORKSPACE": workspace,
        }
        installed = ["--requirements", str(requirements)] if requirements else []
        options = ["--name", project.name, "--log-level", "ERROR", *installed]
        plan = supervise.Plan(path, options, (), Path(workspace), variables, str(python.executable))
        try:
            async with asyncio.timeout(_LOAD_TIMEOUT):
                return await _ask(plan, listener)
        except TimeoutError:
            raise _unloadable(f"it was not ready within {_LOAD_TIMEOUT:g} s") from None


async def _ask(plan: supervise.Plan, listener: socket.socket) -> dict[str, Any]:
    async with supervise.running(plan, listener, asyncio.subprocess.DEVNULL) as (_, said):
        if not isinstance(said, protocol.Ready):
            raise _unloadable(said.error if said else "its process ended without a message")
        async with Api(Origin("localhost", socket=listener.getsockname())) as api:
            listed = await api.call("GET", "/functions/list")
    return {"tools": said.tools, "functions": listed["functions"], "rewards": listed["reward"]}


def _unloadable(why: str) -> output.Failure:
    hint = "'aenv run' shows the traceback; --no-verify skips the check"
    if missing := _MISSING.search(why):
        hint = f"add the package of {missing[1]!r} to requirements.txt; {hint}"
    return output.Failure(f"cannot load the environment: {why}", hint=hint)
