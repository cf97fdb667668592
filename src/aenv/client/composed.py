"""`compose`: one environment of several others, pushed and started with one call.

    async with compose("browser@^1", "python@^1", name="web-and-code") as env:
        await env.call_tool("run", {"code": "print(1)"})

The hub gets a small project whose config.json names the parts in `uses`. Its version is made of its content, so
that the same parts are the same version, and a program that runs again pushes nothing.
Not here: what composed environments are and how their tools are called (docs/composition.md).
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

from ..artifacts import bundles
from ..base import refs, settings
from ..base.addresses import Origin
from ..base.config import FILE_NAME, UsedEnvironment, load_project
from ..base.config.project import read_parts
from ..base.errors import Conflict, Forbidden, InvalidRequest, NotFound, Unsupported, of_field
from ..base.refs import Ref
from .api import Api
from .environment import Environment
from .hub import Hub
from .launch import ReadyInstance

PartLike = str | Mapping[str, Any]
"""`"browser@^1"`, or an object of `uses`: `{"env": "browser@^1", "as": "web"}`."""

_README = "README.md"
_RELEASE = "1.0.0"
_DIGITS = 12  # of the digest, in the version


class InstanceOptions(TypedDict, total=False):
    """The keyword arguments of `Environment` that a composed one takes too."""

    ttl: str | None
    environment_variables: Mapping[str, str | Mapping[str, str]] | None
    arguments: list[str] | None
    aenv_url: str | None
    timeout: float
    startup_timeout: float
    max_retries: int
    api_key: str | None
    owner: str | None
    labels: dict[str, str] | None
    resources: dict[str, str] | None
    network: str | dict[str, list[str]] | None
    wait: str | None
    self_check: bool
    model_url: str | None
    model_key: str | None


def compose(
    *parts: PartLike,
    name: str,
    workspace: Literal["shared"] | None = None,
    project: str | os.PathLike[str] | None = None,
    **options: Unpack[InstanceOptions],
) -> Environment:
    """An environment with the tools of all `parts`; it is pushed as `name` when it starts, if the hub lacks it.

    With `workspace="shared"` all parts work in its workspace. The files of the folder `project` are taken along:
    its tools, rewards and tasks, and its config.json.
    """
    if unknown := sorted(options.keys() - InstanceOptions.__annotations__.keys()):
        raise TypeError(f"compose() takes no argument {unknown[0]!r}")
    if settings.client_settings().instance_id:
        raise Unsupported("compose() is not for code inside an instance; name the parts in config.json, in 'uses'")
    with of_field("name"):
        refs.check_new_name(name)
    if not parts:
        raise InvalidRequest("field 'parts': there is none; name at least one environment, as in 'python@^1'")
    shared = {} if workspace is None else {"workspace": workspace}
    written = [{**({"env": part} if isinstance(part, str) else part), **shared} for part in parts]
    folder = None if project is None else Path(project)
    return ComposedEnvironment(Composition(name, tuple(written), _config_of(folder), folder), options)


@dataclass(frozen=True)
class Composition:
    """What is pushed: the parts, and the folder that is taken along."""

    name: str
    uses: tuple[Mapping[str, Any], ...]
    config: Mapping[str, Any]
    folder: Path | None

    def parts(self) -> tuple[UsedEnvironment, ...]:
        """The parts, read. InvalidRequest names a wrong field."""
        return read_parts({"uses": [*self.uses]})

    def pack(self, versions: Sequence[str], work: Path) -> tuple[Ref, Path, bundles.Bundle]:
        """Its bundle in the folder `work`, with these exact versions of its parts, and its own exact version."""
        uses = [{**part, "env": version} for part, version in zip(self.uses, versions, strict=True)]
        config = {"description": f"Composed of {', '.join(versions)}.", **self.config}
        config |= {"name": self.name, "version": _RELEASE, "uses": uses}
        source, target = self.folder or work / "empty", work / "bundle"
        (work / "empty").mkdir()
        digest = bundles.pack(source, target, self._files(config)).digest
        config["version"] = f"{_RELEASE}-{digest[:_DIGITS]}"
        return Ref(self.name, config["version"]), target, bundles.pack(source, target, self._files(config))

    def _files(self, config: Mapping[str, Any]) -> dict[str, bytes]:
        files = {FILE_NAME: (json.dumps(config, indent=2, sort_keys=True) + "\n").encode()}
        if self.folder is None or not (self.folder / _README).exists():
            files[_README] = f"# {self.name}\n\n{config['description']}\n".encode()
        return files


class ComposedEnvironment(Environment):
    """An environment that is composed and pushed before its instance is created."""

    def __init__(self, composition: Composition, options: InstanceOptions) -> None:
        composition.parts()
        super().__init__(composition.name, **options, runtime_url="")
        self._composition = composition

    async def _launch_at(self, control: Origin) -> ReadyInstance:
        async with Api(control, api_key=self.api_key, timeout=self.timeout, max_retries=self.max_retries) as api:
            self._ref = await _published(self._composition, Hub(api))
        return await super()._launch_at(control)


async def _published(composition: Composition, hub: Hub) -> Ref:
    """The version of the hub that has this content, pushed if there is none."""
    versions = [await _exact(part, hub) for part in composition.parts()]
    with tempfile.TemporaryDirectory(prefix="aenv-compose-") as work:
        ref, archive, bundle = await asyncio.to_thread(composition.pack, versions, Path(work))
        body = {"name": ref.name, "version": ref.version, "bundle": bundle.digest}
        try:
            await hub.upload_bundle(archive, bundle.digest, bundle.size_bytes, lambda _: None)
            # Also where the version is there: only those who may push under this name may say what it holds.
            await hub.create({**body, **await _access(ref.name, hub)})
        except Conflict:
            if (await hub.get(ref)).digest != bundle.digest:
                raise Conflict(f"the hub has '{ref}' with other content; choose another name") from None
        except Forbidden as error:
            raise Forbidden(f"field 'name': {ref.name!r} cannot be pushed: {error.message}") from None
    return ref


async def _exact(part: UsedEnvironment, hub: Hub) -> str:
    """The part in the version that is the latest now."""
    try:
        found = await hub.get(part.environment)
    except NotFound as error:
        raise NotFound(f"field 'uses': the part {part.name!r}: {error.message}") from None
    return f"{found.name}@{found.version}"


async def _access(name: str, hub: Hub) -> dict[str, str]:
    """A new name is private: what it shows of its parts may be. One that is known stays as it is."""
    try:
        await hub.access(name)
    except NotFound:
        return {"access": "private"}
    return {}


def _config_of(folder: Path | None) -> Mapping[str, Any]:
    """The config.json of a folder, where it has one, but for what a composition decides."""
    if folder is None:
        return {}
    with of_field("project"):
        if not folder.is_dir():
            raise InvalidRequest(f"{str(folder)!r} is not a folder")
        if not (folder / FILE_NAME).exists():
            return {}
        project = load_project(folder)
        if project.uses:
            raise InvalidRequest(
                f"its {FILE_NAME} has 'uses'; push this folder as it is, or name its parts here alone"
            )
        return project.raw
