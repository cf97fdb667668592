"""A project: a folder with an environment's code and its config.json, read and checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import refs
from ..composition import MOST_PARTS
from ..errors import InvalidRequest
from . import values as kinds
from .deploy import Deploy, parse_deploy
from .sections import FILE_NAME, RELAYED, ConfigSection, ConfigText, ValueKind, entry, read_fields, read_value


@dataclass(frozen=True)
class Build(ConfigSection):
    """How `aenv build` makes the environment's image."""

    unused = ("build_policy",)
    once_unchecked = ("*",)

    dockerfile: str = entry("dockerfile", kinds.TEXT, "docker/Dockerfile", default="Dockerfile")
    """The Dockerfile of the root file system, which also says the Python that instances run on."""
    context: str = entry("context", kinds.TEXT, "docker", default=".")
    """The folder that the Dockerfile copies from."""
    image_name: str = entry("image_name", kinds.TEXT, "my-env", default="", otherwise="the environment's name")
    """The name of the image."""
    image_tag: str = entry("image_tag", kinds.TEXT, "1.0.0", default="", otherwise="the version")
    """The tag of the image."""


@dataclass(frozen=True)
class ProjectTest(ConfigSection):
    """How `aenv test` tests the environment."""

    once_unchecked = ("*",)

    script: str = entry("script", kinds.TEXT, "pytest -q tests", default="", otherwise="pytest on `tests`")
    """What the shell runs in the project's folder, beside an instance."""


@dataclass(frozen=True)
class Data(ConfigSection):
    """A [folder of data](data.md) that the environment needs and does not bring."""

    required = ("name", "variable")
    refuses_unknown = True

    name: str = entry("name", kinds.DATA_NAME, "tau2", otherwise="required")
    """What `aenv data pull` calls it."""
    variable: str = entry("variable", kinds.DATA_VARIABLE, "TAU2_DATA_DIR", otherwise="required")
    """The variable that tells the environment where the folder is."""
    folders: tuple[str, ...] = entry("folders", kinds.FOLDER_VARIABLES, ["TAU2_GIT_DIR"], default=())
    """Variables that name further folders, which the environment reads where they are set."""


@dataclass(frozen=True)
class UsedEnvironment(ConfigSection):
    """A part of a [composed environment](composition.md)."""

    required = ("env",)
    refuses_unknown = True

    environment: refs.Ref = entry("env", kinds.ENVIRONMENT, "browser@^1", RELAYED, otherwise="required")
    """The environment, with the versions that may be taken. A push takes the latest of them for good."""
    prefix: str = entry("as", kinds.PART_NAME, "web", RELAYED, default="", otherwise="the environment's name")
    """What the part is called; then its tools begin with that, as in `web_goto`. Without, they keep their names
    where no other tool has them."""
    workspace: str = entry("workspace", kinds.WORKSPACE, "shared", RELAYED, default="", otherwise="one of its own")
    """`shared`: the part works in the same workspace as the composed environment."""
    variables: kinds.Variables = entry(
        "environmentVariables", kinds.VARIABLES, {"SEED": "1"}, RELAYED, default=kinds.Variables()
    )
    """Variables for the part, besides its own."""

    @property
    def name(self) -> str:
        return self.prefix or self.environment.name

    @property
    def shares_workspace(self) -> bool:
        return self.workspace == "shared"


@dataclass(frozen=True)
class Grants(ConfigSection):
    """Which [other environments](agents.md#grants) an instance may use, and how much."""

    required = ("environments",)
    refuses_unknown = True

    environments: tuple[refs.Ref, ...] = entry(
        "environments", kinds.ENVIRONMENTS, ["search@^1"], RELAYED, default=(), otherwise="required"
    )
    """The environments, each with the versions that may be used."""
    calls: int = entry("calls", kinds.NUMBER, 100, RELAYED, default=100)
    """How many calls its children may get, those of their children included."""
    depth: int = entry("depth", kinds.NUMBER, 3, RELAYED, default=3)
    """How many levels of children there may be below it."""
    seconds: int = entry("seconds", kinds.NUMBER, 600, RELAYED, default=600)
    """For how long from its start it may use them; its children live no longer."""
    instances: int = entry("instances", kinds.NUMBER, 16, RELAYED, default=16)
    """How many instances may live below it at the same time."""


_BUILD = ValueKind("object", (dict,), section=Build)
_TEST = ValueKind("object", (dict,), section=ProjectTest)
_DATA = ValueKind("object", (dict,), section=Data)
_USES = ValueKind("list of objects", (list,), section=UsedEnvironment)
_GRANTS = ValueKind("object", (dict,), section=Grants)
_DEPLOY = ValueKind("object", (dict,))  # read by `parse_deploy`


@dataclass(frozen=True)
class Project(ConfigSection):
    """An environment: who it is, what it is made of, and where to find it."""

    required = ("name", "version")
    once_unchecked = ("dependencies",)
    unused = ("protocolVersion",)  # each client agrees with the runtime on a version of MCP

    path: Path
    name: str = entry("name", kinds.TEXT, "my-env", otherwise="required")
    """Lower-case letters, digits and `-`."""
    version: str = entry("version", kinds.TEXT, "1.0.0", otherwise="required")
    """Semantic, as in `1.2.0`, so that ranges and the latest are found. Other text of letters, digits and `.+_-`,
    128 characters at most, is a version too, and older than each of these. A released one never changes."""
    description: str = entry("description", kinds.TEXT, "A shop with rewards.", default="")
    """One sentence for lists."""
    tags: tuple[str, ...] = entry("tags", kinds.TEXTS, ["terminal"], default=())
    """Words to find it by in a hub."""
    aliases: tuple[refs.Ref, ...] = entry("aliases", kinds.ALIASES, ["old-name@1.0.0"], default=())
    """Further names with versions, under which a gateway finds it too."""
    status: str = entry("status", kinds.TEXT, "Ready", default="", otherwise="`Ready` once it has code")
    """Its status in a hub after a push."""
    code_url: str = entry("codeUrl", kinds.TEXT, "https://git.example/env.git", default="")
    """Where `aenv push` fetches the code that it packs; empty for this folder."""
    artifacts: tuple[dict[str, str], ...] = entry("artifacts", kinds.OBJECTS, [{"type": "image"}], default=())
    """What `aenv build` has made. The first of type `image` or `docker-image` is the image of instances."""
    build: Build = entry("buildConfig", _BUILD, {"dockerfile": "docker/Dockerfile"}, default=Build())
    """How its image is built."""
    test: ProjectTest = entry("testConfig", _TEST, {"script": "pytest -q tests"}, default=ProjectTest())
    """How it is tested."""
    deploy: Deploy = entry("deployConfig", _DEPLOY, {"memory": "2Gi"}, default=Deploy())
    """What its instances may use and reach."""
    data: Data | None = entry("data", _DATA, {"name": "tau2", "variable": "TAU2_DATA_DIR"}, otherwise="none")
    """The data that it needs."""
    uses: tuple[UsedEnvironment, ...] = entry(
        "uses", _USES, [{"env": "browser@^1", "as": "web"}], RELAYED, default=()
    )
    """The environments that it is [composed](composition.md) of: their tools are its tools."""
    grants: Grants | None = entry("grants", _GRANTS, {"environments": ["search@^1"]}, RELAYED, otherwise="none")
    """The other environments that its instances may use."""
    dependencies: dict[str, Any] | None = entry("dependencies", kinds.OBJECT, {"environments": ["base@^1"]})
    """Environments that it is made for, shown by a hub."""
    eval_only: bool = entry("evalOnly", kinds.FLAG, True, default=False)
    """Whether its conversations are for [evaluation alone](tasks.md), and not exported as training data."""
    self_check: bool = entry("selfCheck", kinds.FLAG, True, default=False, otherwise="the value of `evalOnly`")
    """Whether a task must have proved that its [reward](tasks.md) tells its solution from doing nothing."""
    is_published: bool = False
    """Whether it came from a hub. Else it is a folder that the operator of this process has chosen."""
    owner: str | None = None
    pushed_by: str | None = None
    """In that hub: whose environment it is, and who pushed this version or changed it last."""

    @property
    def ref(self) -> refs.Ref:
        return refs.Ref(self.name, self.version)

    @property
    def image(self) -> str:
        """The image that was built of it; empty when there is none."""
        found = (one for one in self.artifacts if one.get("type") in ("image", "docker-image"))
        return next(found, {}).get("content", "")


def load_project(path: Path, *, is_published: bool = False) -> Project:
    """Read the config.json of the project in the folder `path`; with `is_published`, of a bundle of a hub."""
    file = path / FILE_NAME
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        above = path.absolute().parent
        found = (above / FILE_NAME).is_file()
        fix = f"{str(above)!r} has one" if found else "make a project with 'aenv init NAME'"
        raise InvalidRequest(f"no {FILE_NAME} in {str(path)!r}; {fix}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"cannot read {str(file)!r}: {error}") from error
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"{str(file)!r} is not JSON: {error}") from error
    if not isinstance(raw, dict):
        raise InvalidRequest(f"{FILE_NAME} in {str(path)!r} must hold a JSON object")
    return _project(path, raw, ConfigText(text, str(path), is_published))


def _project(path: Path, raw: dict[str, Any], text: ConfigText) -> Project:
    found = read_fields(Project, raw, text, "")
    for field in ("name", "version"):
        try:
            refs.exact(found["name"], found["version"] if field == "version" else "1")
        except InvalidRequest as error:
            raise text.error(field, error.message) from None
    found["deploy"] = parse_deploy(found.get("deploy", {}), text)
    _check_parts(found.get("uses", ()), text)
    return Project(path, **{"self_check": found.get("eval_only", False), **found}, raw=raw)


def read_parts(raw: Mapping[str, Any]) -> tuple[UsedEnvironment, ...]:
    """The parts that the object of a config.json names; without line numbers."""
    text, (_, told) = ConfigText(), Project.entries()["uses"]
    parts: tuple[UsedEnvironment, ...] = read_value(told, raw.get("uses") or [], "uses", text)
    _check_parts(parts, text)
    return parts


def _check_parts(parts: tuple[UsedEnvironment, ...], text: ConfigText) -> None:
    if len(parts) > MOST_PARTS:
        raise text.error("uses", f"has {len(parts)} parts; an environment is composed of at most {MOST_PARTS}")
    for part in parts:
        if part.variables.secrets:
            raise text.error("uses.environmentVariables", "a part gets no secrets; write a text")
    names = [part.name for part in parts]
    for name in names:
        if names.count(name) > 1:
            raise text.error("uses", f"two parts are called {name!r}; give one of them another name with 'as'")
