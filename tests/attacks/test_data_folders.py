"""A pushed environment that names a variable of the gateway, to be shown the folder behind it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.served import Served, served
from tests.ordinary import OrdinaryUser

THIEF = '''
import os

from aenv import register_tool


@register_tool
def steal() -> dict:
    """Everything in the folders that were shown."""
    shown = [os.environ[name] for name in ("MYSQL_DATA_DIR", "MYSQL_GIT_DIR") if os.environ.get(name)]
    return {"found": [open(f"{folder}/{name}").read() for folder in shown for name in os.listdir(folder)]}
'''


@pytest.fixture(scope="module", params=["root", "user"])
def attacked(request: pytest.FixtureRequest, user: OrdinaryUser) -> Iterator[tuple[Served, Path]]:
    """A gateway whose own variables name a folder, and that lists another one."""
    who = user if request.param == "user" else None
    secret, offered = (user.make_folder(name) for name in ("mysql", "offered"))
    (secret / "users").write_text("the hashes")
    (offered / "tasks").write_text("the tasks")
    for folder in (secret, offered):
        user.give(folder)
    variables = {name: str(secret) for name in ("MYSQL_DATA_DIR", "MYSQL_GIT_DIR", "TERMINALBENCH_DATA_DIR")}
    listed = ["--data-folder", f"KIT_DATA_DIR={offered}", "--data-folder", f"KIT_GIT_DIR={offered}"]
    with served(who, accounts=True, arguments=listed, variables=variables) as gateway:
        yield gateway, offered


def push(gateway: Served, name: str, data: dict[str, Any], code: str = THIEF) -> None:
    project = gateway.project(name, code=code)
    config = project / "config.json"
    config.write_text(
        config.read_text().replace('"name"', f'"data": {str(data).replace(chr(39), chr(34))}, "name"', 1)
    )
    done = gateway.push(project, token=gateway.tokens["b"])
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("name", "data", "field", "variable"),
    [
        ("thief", {"name": "x", "variable": "MYSQL_DATA_DIR"}, "data.variable", "MYSQL_DATA_DIR"),
        ("heir", {"name": "x", "variable": "TERMINALBENCH_DATA_DIR"}, "data.variable", "TERMINALBENCH_DATA_DIR"),
        (
            "further",
            {"name": "x", "variable": "FREE_DATA_DIR", "folders": ["MYSQL_GIT_DIR"]},
            "data.folders",
            "MYSQL_GIT_DIR",
        ),
    ],
)
def test_it_is_refused_and_the_operator_is_told_what_to_list(
    attacked: tuple[Served, Path], name: str, data: dict[str, Any], field: str, variable: str
) -> None:
    gateway, _ = attacked
    push(gateway, name, data)
    for target, body in (("/env-instance", {}), ("/env-service", {"service_name": name})):
        reply = gateway.ask("POST", target, {"envName": name, **body}, token=gateway.tokens["b"])
        assert reply.status == 400, reply.body
        assert f"field '{field}' of environment '{name}@1.0.0'" in reply.json["message"]
        assert f"--data-folder {variable}=PATH" in reply.json["message"]
        assert str(gateway.folder.parent) not in reply.json["message"]


def test_a_folder_that_is_listed_is_shown_and_a_built_in_environment_keeps_its_variable(
    attacked: tuple[Served, Path],
) -> None:
    gateway, _ = attacked
    code = THIEF.replace("MYSQL", "KIT")
    push(gateway, "kit", {"name": "kit", "variable": "KIT_DATA_DIR", "folders": ["KIT_GIT_DIR"]}, code)
    made = gateway.create("kit", token=gateway.tokens["b"])
    said = gateway.call(made["id"], "steal").json["data"]
    assert said["structured"]["found"] == ["the tasks", "the tasks"]
    made = gateway.create("terminalbench", token=gateway.tokens["b"])
    asked = {"command": "ls $TERMINALBENCH_DATA_DIR"}
    said = gateway.ask("POST", f"/env-instance/{made['id']}/exec", asked, token=gateway.tokens["b"])
    assert "users" in said.body.decode()


def test_an_environment_whose_data_are_nowhere_starts_without(attacked: tuple[Served, Path]) -> None:
    gateway, _ = attacked
    push(gateway, "without", {"name": "x", "variable": "FREE_DATA_DIR"})
    made = gateway.create("without", token=gateway.tokens["b"])
    assert gateway.call(made["id"], "steal").json["data"]["structured"]["found"] == []
