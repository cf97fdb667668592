"""`aenv test`: the tests of a project, with an instance of the project."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...base import settings
from .. import local_project, output
from ..help_pages import documented

if TYPE_CHECKING:
    from ...base.config import Project

# What pytest-asyncio, where it is installed, says of every project before the first test. It is not the author's
# mistake. An option of pytest, because PYTHONWARNINGS would also hide deprecations in the author's code.
_NOT_OF_THE_AUTHOR = 'ignore:The configuration option "asyncio_default_fixture_loop_scope" is unset'


@documented("test", examples=("aenv test", "aenv test ./my-env --script 'pytest -q tests'"))
@click.argument("path", type=click.Path(path_type=Path, exists=True, file_okay=False), default=Path("."))
@click.option("--script", help="Shell script to run instead of testConfig.script.")
def command(path: Path, script: str | None) -> int:
    """Run the tests of a project together with an instance of it.

    PATH is the folder of the project; without it, the current folder. The tests are the shell script
    testConfig.script in config.json; without one, pytest runs the folder 'tests'. They run in the folder of the
    project, with the packages of its requirements.txt, and find the instance by AENV_SYSTEM_URL and
    AENV_INSTANCE_ID. The exit code is that of the script.
    """
    import asyncio

    found = local_project.load(path)
    script = script or found.test.script or _pytest(found)
    with tempfile.TemporaryDirectory(prefix="aenv-test-") as folder:
        return asyncio.run(_test(found, script, Path(folder) / "home"))


def _pytest(found: Project) -> str:
    """The script of a project that names none."""
    import shlex
    import sys
    from importlib.util import find_spec

    if not (found.path / "tests").is_dir():
        raise output.Failure(
            f"config.json of {found.ref} has no testConfig.script, and the project has no folder 'tests'",
            hint="aenv test --script COMMAND",
        )
    if find_spec("pytest") is None:
        raise output.Failure("pytest is not installed", hint="pip install pytest, or pass --script COMMAND")
    return shlex.join([sys.executable, "-m", "pytest", "-q", "-W", _NOT_OF_THE_AUTHOR, "tests"])


async def _test(found: Project, script: str, home: Path) -> int:
    import asyncio

    from ...base.child_processes import end
    from ...client.environment import Environment
    from ...rollouts.own_gateway import own_gateway

    async with (
        own_gateway(found.path, home) as url,
        Environment(str(found.ref), aenv_url=url, runtime_url="", max_retries=0) as env,
    ):
        variables = {**settings.variables(), "AENV_SYSTEM_URL": url, "AENV_INSTANCE_ID": str(env.instance_id)}
        variables.pop(settings.DIRECT_MODE_VARIABLE, None)  # it would win over the gateway
        if packages := await _packages(found, home):
            variables["PYTHONPATH"] = os.pathsep.join(filter(None, (variables.get("PYTHONPATH"), str(packages))))
        process = await asyncio.create_subprocess_exec(
            "/bin/sh", "-c", script, cwd=found.path, env=variables, start_new_session=True
        )
        try:
            code = await process.wait()
        finally:
            await end(process)
    return code if code >= 0 else 128 - code


async def _packages(found: Project, home: Path) -> Path | None:
    """What the project requires, as its instance has it, for the Python that runs the tests."""
    from ...artifacts import requirements
    from ...base.errors import AEnvError

    try:
        return await requirements.folder_for(found.path / "requirements.txt", home)
    except AEnvError as error:  # its instances may have another Python; the tests say what they miss
        output.talk(f"the tests run without the packages of the project: {error.message}")
        return None
