"""`aenv test`: a project's own test script, beside an instance of the project."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...base import settings
from .. import output, project

if TYPE_CHECKING:
    from ...base.config import Project


@click.command("test")
@click.argument("path", type=click.Path(path_type=Path, exists=True, file_okay=False), default=Path("."))
@click.option("--script", help="Run this instead of testConfig.script.")
def command(path: Path, script: str | None) -> int:
    """Run the tests of the project at PATH (the current folder unless given) with an instance of it.

    They are testConfig.script; without one, those in the folder tests, by pytest. The script is for the shell, and
    runs in the project's folder. It finds the instance by AENV_SYSTEM_URL and AENV_INSTANCE_ID; its exit code is
    that of this command.
    """
    import asyncio

    found = project.load(path)
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
            f"config.json of {found.ref} has no testConfig.script, and there is no folder 'tests'",
            hint="aenv test --script COMMAND, or write one",
        )
    if find_spec("pytest") is None:
        raise output.Failure("the tests of a project need pytest", hint="pip install pytest; or --script COMMAND")
    return f"{shlex.quote(sys.executable)} -m pytest -q tests"


async def _test(found: Project, script: str, home: Path) -> int:
    import asyncio

    from .. import target
    from ..own_gateway import own_gateway
    from ..supervise import end

    async with (
        own_gateway(found.path, home) as url,
        target.behind_gateway(str(found.ref), url) as env,
    ):
        variables = {**settings.variables(), "AENV_SYSTEM_URL": url, "AENV_INSTANCE_ID": str(env.instance_id)}
        variables.pop(settings.DIRECT_MODE_VARIABLE, None)  # it would win over the gateway
        process = await asyncio.create_subprocess_exec(
            "/bin/sh", "-c", script, cwd=found.path, env=variables, start_new_session=True
        )
        try:
            code = await process.wait()
        finally:
            await end(process)
    return code if code >= 0 else 128 - code
