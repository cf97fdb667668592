"""Environments that come with the package: found by name, given their data, and made only of public names."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import aenv
from aenv import Environment
from aenv.artifacts.bundles import packing
from aenv.artifacts.data import builtin, data_folders
from aenv.base import config
from aenv.base.errors import InvalidRequest
from aenv.client.embedded import forwarded
from tests.command_line import aenv as run_aenv
from tests.command_line import environ
from tests.gateways import Gateway, make_project, running_gateway
from tests.native import traces

ROOT = Path(__file__).resolve().parent.parent
PROJECTS = sorted(path.parent for path in (ROOT / "src" / "aenv" / "envs").glob("*/config.json"))
EXTRAS = {"browser": {"playwright"}, "swebench": {"pytest"}, "terminalbench": {"pytest"}}
"""What an environment may import besides, within a function: it says so where it is missing."""

CODE = '''
import os
from aenv import register_tool


@register_tool
def look() -> dict:
    """What is seen of the data."""
    folder = os.environ.get("KIT_DATA_DIR", "")
    try:
        open(os.path.join(folder or "/data", "written"), "w").close()
        can_write = True
    except OSError:
        can_write = False
    listed = sorted(os.listdir(folder)) if folder else []
    return {"folder": folder, "listed": listed, "can_write": can_write, "name": os.environ["AENV_ENVIRONMENT"]}
'''
DATA = {"name": "kit", "variable": "KIT_DATA_DIR"}


def project(folder: Path, name: str = "kit", version: str = "1.0.0", **fields: Any) -> Path:
    """A project whose config.json has more fields."""
    made = make_project(folder, name, version, CODE)
    file = made / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))
    return made


@pytest.fixture
def built_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of built-in environments in the place of the package's: one is sound, one is broken."""
    folder = tmp_path / "built-in"
    project(folder, aliases=["old-kit@0.9.0", "old-kit@1.0.0"], data=DATA)
    (folder / "broken").mkdir()
    (folder / "broken" / "config.json").write_text("{")
    (folder / "no-project").mkdir()
    known = builtin.built_in(folder)
    # The package's own are others' work, and may change.
    for module in (builtin, data_folders):
        monkeypatch.setattr(module, "built_in", lambda: known)
    return folder


@pytest.fixture
def data(tmp_path: Path) -> Callable[[str], Path]:
    """`data("x")` makes a folder that holds a file of that name, at `x` below the test's folder."""

    def make(name: str) -> Path:
        folder = tmp_path / name
        folder.mkdir(parents=True)
        (folder / Path(name).name).touch()
        return folder

    return make


async def look(gateway: Gateway, env_name: str = "kit", **body: Any) -> dict[str, Any]:
    made = await gateway.create(env_name, **body)
    seen: dict[str, Any] = await gateway.call(made["id"], "look")
    status, _ = await gateway.ask("DELETE", f"/env-instance/{made['id']}")
    assert status == 200
    return seen


# Found by name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("kit", "kit@1.0.0"),
        ("kit@1.0.0", "kit@1.0.0"),
        ("kit@^1.0", "kit@1.0.0"),
        ("old-kit", "old-kit@1.0.0"),
        ("old-kit@0.9.0", "old-kit@0.9.0"),
    ],
)
async def test_a_built_in_environment_starts_by_its_name_and_by_an_alias(
    tmp_path: Path, built_in: Path, asked: str, found: str
) -> None:
    name, _, version = found.partition("@")
    async with running_gateway(tmp_path / "home") as gateway:
        made = await gateway.create(asked)
        assert (made["env"]["name"], made["env"]["version"]) == (name, version)
        assert (await gateway.call(made["id"], "look"))["name"] == found
        listed = (await gateway.ask("GET", f"/env-instance/{found}/list"))[1]["data"]
        assert [each["id"] for each in listed] == [made["id"]]
        shown = (await gateway.ask("GET", f"/env/{name}/{version}"))[1]["data"]
        assert (shown["name"], shown["version"], [tool["name"] for tool in shown["tools"]]) == (
            name,
            version,
            ["look"],
        )


async def test_what_is_unknown_is_not_found_and_what_is_near_is_named(tmp_path: Path, built_in: Path) -> None:
    async with running_gateway(tmp_path / "home") as gateway:
        for asked in ("kit@2.0.0", "old-kitt", "broken"):
            status, reply = await gateway.ask("POST", "/env-instance", {"envName": asked})
            assert status == 404, reply
            assert ("kit@1.0.0" in reply["message"]) == ("kit" in asked)


async def test_a_folder_of_ones_own_comes_before_a_built_in_environment(tmp_path: Path, built_in: Path) -> None:
    own = make_project(tmp_path, "kit", "1.0.0")  # which has other tools
    older = make_project(tmp_path / "home" / "envs", "old-kit", "0.1.0")
    async with running_gateway(tmp_path / "home", own) as gateway:
        for asked, version in (("kit", "1.0.0"), ("kit@1.0.0", "1.0.0"), ("old-kit", "0.1.0")):
            made = await gateway.create(asked)
            assert await gateway.call(made["id"], "echo", text=asked) == asked
            assert made["env"]["version"] == version
        assert (await look(gateway, "old-kit@0.9.0"))["name"] == "old-kit@0.9.0"
    assert older.is_dir()


async def test_what_is_pushed_comes_before_a_built_in_environment_of_that_name(
    tmp_path: Path, built_in: Path
) -> None:
    async with running_gateway(tmp_path / "home") as gateway:
        exists = (await gateway.ask("GET", "/env/kit/1.0.0/exists"))[1]["data"]
        assert exists == {"exists": False}  # so that a push goes on
        published = {"name": "kit", "version": "1.0.0", "description": "mine"}
        status, reply = await gateway.ask("POST", "/env", published)
        assert status == 200, reply
        shown = (await gateway.ask("GET", "/env/kit/1.0.0"))[1]["data"]
        assert shown["description"] == "mine"


async def test_a_built_in_environment_tells_the_digest_of_its_code_and_is_not_pushed(
    tmp_path: Path, built_in: Path
) -> None:
    async with running_gateway(tmp_path / "home") as gateway:
        folder = builtin.built_in()["kit"]["1.0.0"].path
        packed = packing.pack(folder, tmp_path / "bundle")
        _, reply = await gateway.ask("GET", "/env/kit/1.0.0")
    assert (reply["data"]["code_digest"], reply["data"]["digest"]) == (packed.digest, None)


async def test_built_in_environments_are_not_among_those_that_were_pushed(tmp_path: Path, built_in: Path) -> None:
    async with running_gateway(tmp_path / "home") as gateway:
        assert (await gateway.ask("GET", "/env"))[1]["data"] == []
        versions = (await gateway.ask("GET", "/env/kit"))[1]["data"]["versions"]
        assert [each["version"] for each in versions] == ["1.0.0"]


def test_a_broken_one_is_left_out_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    project(tmp_path)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{")
    assert list(builtin.built_in(tmp_path)) == ["kit"]
    assert [record.message.split(":")[0] for record in caplog.records] == [f"left out {tmp_path / 'broken'}"]
    assert builtin.built_in(tmp_path) is builtin.built_in(tmp_path)  # read once


def test_the_list_of_the_package_needs_no_server(tmp_path: Path) -> None:
    env = environ(AENV_HOME=str(tmp_path / "home"))
    done = run_aenv("list", "--builtin", "--json", env=env)
    assert (done.returncode, done.stderr) == (0, "")
    listed = {each["name"]: each for each in json.loads(done.stdout)}
    assert {path.name.replace("_", "-") for path in PROJECTS} == set(listed)
    assert listed["mini-terminal"]["version"] == "1.0.1"
    assert all(each["description"] for each in listed.values())
    table = run_aenv("list", "mini", "--builtin", env=env).stdout.splitlines()
    assert [line.split()[0] for line in table] == ["Name", "mini-program", "mini-terminal"]
    assert not (tmp_path / "home").exists()


# Data


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"aliases": ["kit"]}, "config.json:1: aliases: bad alias 'kit'; write it as 'name@1.0.0'"),
        ({"aliases": [1]}, "config.json:1: aliases: bad alias 1; write it as 'name@1.0.0'"),
        ({"aliases": "x@1.0.0"}, "config.json:1: aliases: must be a list"),
        ({"evalOnly": 1}, "config.json:1: evalOnly: must be true or false"),
        ({"data": {"name": "x"}}, "config.json:1: data: lacks 'variable'; add it as in"),
        ({"data": {"name": "../x", "variable": "X_DATA_DIR"}}, "config.json:1: data.name: bad value '../x'"),
        # Whoever publishes an environment would get a folder of the gateway's choice of words.
        ({"data": {"name": "x", "variable": "HOME"}}, "config.json:1: data.variable: bad value 'HOME'"),
        ({"data": {**DATA, "more": 1}}, "config.json:1: data.more: is not known here; use 'name'"),
        ({"data": {**DATA, "folders": ["XDG_RUNTIME_DIR"]}}, "config.json:1: data.folders: bad value 'XDG_RUN"),
        ({"data": {**DATA, "folders": "KIT_GIT_DIR"}}, "config.json:1: data.folders: must be a list"),
        ({"deployConfig": {"sidecar": 1}}, "config.json:1: deployConfig.sidecar: must be a string or"),
    ],
)
def test_a_wrong_field_is_found_when_the_project_is_read(
    tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        config.load_project(project(tmp_path, **fields))
    assert caught.value.message.startswith(message)


def test_the_new_fields_are_known(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    deploy = {"sidecar": {"dockerfile": ["{TASK}/Dockerfile"]}}
    made = project(tmp_path, aliases=["a@1.0.0"], data=DATA, evalOnly=True, deployConfig=deploy)
    loaded = config.load_project(made)
    assert (list(map(str, loaded.aliases)), loaded.data) == (["a@1.0.0"], config.Data("kit", "KIT_DATA_DIR"))
    assert caplog.records == []


@pytest.mark.slow
async def test_data_is_found_in_the_order_of_who_says_it(
    tmp_path: Path, built_in: Path, data: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    home, top = tmp_path / "home", tmp_path / "offered"
    async with running_gateway(home, data_roots=(top,)) as gateway:
        assert await look(gateway) == {"folder": "", "listed": [], "can_write": False, "name": "kit@1.0.0"}
        fetched = data("home/data/kit")
        assert (await look(gateway))["folder"] == str(fetched)
        own = data("own")
        monkeypatch.setenv("KIT_DATA_DIR", str(own))
        assert (await look(gateway))["folder"] == str(own)
        named = data("offered/named")
        variables = {"KIT_DATA_DIR": str(named)}
        assert (await look(gateway, environment_variables=variables))["folder"] == str(named)
        relative = {"KIT_DATA_DIR": "./named"}
        assert (await look(gateway, environment_variables=relative))["folder"] == str(named)
        source = data("offered/source")
        seen = await look(gateway, environment_variables=variables, datasource=str(source))
        assert (seen["folder"], seen["listed"]) == (str(source), ["source", "written"])  # the host's own: no mount
        assert (await look(gateway, environment_variables={"KIT_DATA_DIR": ""}))["folder"] == str(own)


async def test_a_request_reaches_no_folder_by_a_variable_that_it_could_not_name_as_datasource(
    tmp_path: Path, built_in: Path, data: Callable[[str], Path]
) -> None:
    top, secret = data("offered"), data("secret")
    (top / "out").symlink_to(secret)
    for roots, why in (((), "--data-root"), ((top,), "is not a folder below a data root of this gateway")):
        async with running_gateway(tmp_path / "home", data_roots=roots) as gateway:
            for named in (str(secret), "./out", "../secret", "/data"):
                variables = {"KIT_DATA_DIR": named}
                body = {"envName": "kit", "environment_variables": variables}
                status, reply = await gateway.ask("POST", "/env-instance", body)
                assert status == 400
                assert "field 'environment_variables.KIT_DATA_DIR'" in reply["message"]
                assert why in reply["message"]


async def test_a_variable_of_the_gateway_that_names_no_folder_is_told_without_the_path(
    tmp_path: Path, built_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KIT_DATA_DIR", str(tmp_path / "nowhere"))
    async with running_gateway(tmp_path / "home") as gateway:
        status, reply = await gateway.ask("POST", "/env-instance", {"envName": "kit"})
        assert status == 400
        assert "KIT_DATA_DIR" in reply["message"]
        assert "nowhere" not in reply["message"]


@pytest.mark.slow
async def test_an_isolated_instance_reads_its_data_at_one_place_and_cannot_change_it(
    tmp_path: Path, built_in: Path, data: Callable[[str], Path]
) -> None:
    home = tmp_path / "home"
    folder = data("offered/mine")
    async with running_gateway(home, engine="native", data_roots=(tmp_path / "offered",)) as gateway:
        assert (await look(gateway))["folder"] == ""
        data("home/data/kit")
        expected = {"folder": "/data", "listed": ["kit"], "can_write": False, "name": "old-kit@1.0.0"}
        assert await look(gateway, "old-kit") == expected
        seen = await look(gateway, environment_variables={"KIT_DATA_DIR": str(folder)})
        assert (seen["folder"], seen["listed"]) == ("/data", ["mine"])
        seen = await look(gateway, datasource=str(folder))
        assert (seen["folder"], seen["listed"]) == ("/data", ["mine"])
    assert traces(home) == []


FURTHER = '''
import os
from aenv import register_tool


@register_tool
def look() -> dict:
    """What is seen of the further folder."""
    folder = os.environ.get("KIT_GIT_DIR", "")
    return {"folder": folder, "listed": sorted(os.listdir(folder)) if folder else [],
            "can_write": bool(folder) and os.access(folder, os.W_OK)}
'''


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["process", "native"])
async def test_further_folders_are_found_as_the_data_are_and_can_be_read_alone(
    tmp_path: Path, data: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    made = project(tmp_path, data={**DATA, "folders": ["KIT_GIT_DIR"]})
    next(made.glob("src/*.py")).write_text(FURTHER)
    own, named, inside = data("own"), data("offered/named"), data("home/data/kit")
    (inside / "more").mkdir()

    def expected(folder: Path) -> tuple[str, list[str]]:
        return (str(folder) if engine == "process" else "/folders/kit_git_dir", [folder.name])

    async with running_gateway(
        tmp_path / "home", made, engine=engine, data_roots=(tmp_path / "offered",)
    ) as gateway:
        assert (await look(gateway))["folder"] == ""
        monkeypatch.setenv("KIT_GIT_DIR", str(own))
        seen = await look(gateway)
        assert (seen["folder"], seen["listed"]) == expected(own)
        assert engine == "process" or not seen["can_write"]
        seen = await look(gateway, environment_variables={"KIT_GIT_DIR": str(named)})
        assert (seen["folder"], seen["listed"]) == expected(named)
        body = {"envName": "kit", "environment_variables": {"KIT_GIT_DIR": str(own)}}
        status, reply = await gateway.ask("POST", "/env-instance", body)
        assert (status, "field 'environment_variables.KIT_GIT_DIR'" in reply["message"]) == (400, True)
        if engine == "native":
            among = await look(gateway, environment_variables={"KIT_GIT_DIR": "/data/more"})
            assert (among["folder"], among["listed"]) == ("/data/more", [])


def test_the_variables_of_a_program_reach_the_platform_for_environments_that_declare_them(
    built_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KIT_DATA_DIR", "here")
    monkeypatch.setenv("OTHER_DATA_DIR", "/other")
    here = {"KIT_DATA_DIR": str(tmp_path / "here")}
    assert forwarded(None, "kit", {}) == here
    assert forwarded(None, "old-kit@0.9.0", {"A": "b"}) == {**here, "A": "b"}
    assert forwarded(None, "kit", {"KIT_DATA_DIR": "/given"}) == {"KIT_DATA_DIR": "/given"}
    assert forwarded(None, "another", {}) == {}
    assert forwarded("http://elsewhere", "kit", {}) == {}
    assert Environment("kit")._create_body()["environment_variables"] == here
    assert Environment("kit", aenv_url="http://elsewhere")._create_body()["environment_variables"] == {}


def test_aenv_run_finds_fetched_data_too(tmp_path: Path, data: Callable[[str], Path]) -> None:
    folder = data("home/data/kit")
    made = project(tmp_path, data=DATA)
    env = environ(AENV_HOME=str(tmp_path / "home"))
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "look", "arguments": {}}}
    begin = {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        },
    }
    asked = "".join(json.dumps(each) + "\n" for each in (begin, call))
    done = run_aenv("run", made, "--stdio", "-q", env=env, stdin=asked)
    answer = json.loads(done.stdout.splitlines()[-1])["result"]
    assert json.loads(answer["content"][0]["text"])["folder"] == str(folder)


@pytest.fixture
def platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home whose platform is ended with the test."""
    home = tmp_path / "h"
    monkeypatch.setenv("AENV_HOME", str(home))
    yield home
    for process in psutil.process_iter(["cmdline"]):
        if str(home / "run") in " ".join(process.info["cmdline"] or []):
            process.terminate()
            process.wait(10)


@pytest.mark.slow  # a platform is started
async def test_in_embedded_mode_a_built_in_environment_starts_by_its_name(platform: Path) -> None:
    for asked in ("mini-terminal@1.0.1", "mini-terminal"):
        async with Environment(asked) as env:
            said = await env.call_tool("execute_command", {"command": "echo $((6 * 7))"})
            assert "42" in said.text
            assert (await env.get_env_info())["name"] == asked


# What they are made of


@pytest.mark.parametrize("folder", PROJECTS, ids=lambda folder: folder.name)
def test_the_folder_is_a_project_with_all_its_parts(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    loaded = config.load_project(folder)
    assert caplog.records == []  # no field that nobody knows
    assert loaded.name.replace("-", "_") == folder.name
    assert loaded.description
    assert [name for name in ("README.md", "example.py", "src") if not (folder / name).exists()] == []
    assert not (folder / "__init__.py").exists()


@pytest.mark.slow
@pytest.mark.parametrize("folder", PROJECTS, ids=lambda folder: folder.name)
def test_its_sources_import_the_standard_library_pydantic_their_own_and_public_names(folder: Path) -> None:
    sources = sorted((folder / "src").rglob("*.py"))
    own = {path.stem for path in sources} | {path.name for path in (folder / "src").iterdir() if path.is_dir()}
    found = [
        f"{path.relative_to(folder)}:{line}: {what}"
        for path in sources
        for line, what in foreign_imports(path.read_text(), own, EXTRAS.get(folder.name, set()))
    ]
    assert found == []


def foreign_imports(text: str, own: set[str], extras: set[str]) -> Iterator[tuple[int, str]]:
    """Imports that an environment may not have; `extras` are fine inside a function."""
    tree = ast.parse(text)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    late = {id(node) for function in functions for node in ast.walk(function)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [node.module or ""]
        else:
            continue
        allowed = sys.stdlib_module_names | {"pydantic", "yaml"} | own | (extras if id(node) in late else set())
        for module in modules:
            if isinstance(node, ast.ImportFrom) and module == "aenv" and not node.level:
                yield from ((node.lineno, alias.name) for alias in node.names if alias.name not in aenv.__all__)
            elif module.partition(".")[0] not in allowed or getattr(node, "level", 0):
                yield node.lineno, module


def test_the_check_of_imports_finds_what_is_foreign() -> None:
    text = (
        "import os, numpy\nimport aenv\nfrom aenv.client import api\nfrom aenv import Context, config\n"
        "from pydantic.fields import x\nfrom mine import y\nfrom . import z\nimport late\n"
        "def f():\n    import late\n    from numpy import array\n"
    )
    found = list(foreign_imports(text, {"mine"}, {"late"}))
    assert sorted(found) == [
        (1, "numpy"),
        (2, "aenv"),
        (3, "aenv.client"),
        (4, "config"),
        (7, ""),
        (8, "late"),
        (11, "numpy"),
    ]


def test_names_of_modules_are_unique_over_all_environments() -> None:
    modules = [(path.stem, folder.name) for folder in PROJECTS for path in (folder / "src").glob("*.py")]
    assert len({module for module, _ in modules}) == len(modules)
    wrong = [f"{folder}: {module}" for module, folder in modules if not module.lstrip("_").startswith(folder)]
    assert wrong == []


@pytest.mark.slow  # a wheel is built
@pytest.mark.timeout(300)
def test_the_wheel_holds_every_file_of_every_built_in_environment(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "uv", "build", "--quiet", "--wheel", "-o", tmp_path / "dist", ROOT]
    subprocess.run(build, check=True)
    (wheel,) = (tmp_path / "dist").glob("aenvironment-*.whl")
    source = ROOT / "src"
    files = {
        path.relative_to(source).as_posix()
        for folder in ("envs", "data")
        for path in (source / "aenv" / folder).rglob("*")
        if path.is_file() and not any(part.endswith(("cache__", "_cache")) for part in path.parts)
    }
    with zipfile.ZipFile(wheel) as archive:
        assert files - set(archive.namelist()) == set()
