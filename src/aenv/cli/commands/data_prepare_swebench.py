"""`aenv data prepare swebench`: what its tasks need, such as interpreters and packages; and self-checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ...base import settings
from .. import connection, output, parameters
from ..help_pages import documented
from ..output_formats import PUBLISHED, formats

if TYPE_CHECKING:
    from ...rollouts.preparation import CheckedTask

_NAME = "swebench"
_LIMIT = 3 * 3600.0  # seconds for the self-check of one record: large suites run several times


@documented(
    _NAME, examples=("aenv data prepare swebench", "aenv data prepare swebench --instances psf__requests-1963")
)
@click.option(
    "--instances", metavar="ID,…", help="Tasks to prepare, separated by commas.  [default: all tasks in the data]"
)
@click.option(
    "--base",
    type=click.Choice(["sdist", "git"]),
    default="sdist",
    help="Source of the repositories: release archives, or git mirrors.",
)
@click.option("--no-self-check", is_flag=True, help="Prepare the tasks without running their self-checks.")
@click.option("--concurrency", type=parameters.Number(1), default=1, help="Self-checks to run in parallel.")
@formats(*PUBLISHED)
@connection.options
def command(
    instances: str | None,
    base: str,
    no_self_check: bool,
    concurrency: int,
    as_json: bool,
    gateway: connection.Gateway,
) -> int:
    """Prepare the repositories, interpreters and packages of tasks.

    Each task gets a virtual environment in the home folder, which instances see read-only. Tasks that are ready
    are skipped, so the same command continues an interrupted run. Then each task is checked: its reference
    solution must pass, and doing nothing must not. The exit code is 1 when a task is not ready.
    """
    from ...artifacts.data import prepare
    from ...rollouts import locations, preparation
    from ...rollouts.task import TaskSelection
    from ...rollouts.task_instances import InstanceSource

    ids = [id.strip() for id in (instances or "").split(",") if id.strip()]
    rows: list[dict[str, str]] = []
    for one in prepare.prepare(_NAME, settings.home(), ids, base, output.talk):
        output.talk(f"{one.id}: {f'not ready: {one.failed}' if one.failed else 'ready'}")
        rows.append({"id": one.id, "base": one.ready, "check": "", "reason": one.failed})
    ready = {row["id"]: row for row in rows if row["base"]}
    if ready and not no_self_check:
        place = InstanceSource(str(prepare.preparable(_NAME).ref), gateway.url, gateway.api_key, limit=_LIMIT)
        for found in preparation.prepared(locations.known(place), TaskSelection([*ready]), concurrency, _tell):
            ready[found.task].update(check=found.self_check, reason=found.reason)
    headers = ("Id", "Base", "Self-check", "Reason")
    output.answer(rows, headers, [(*row.values(),) for row in rows], as_json=as_json)
    return int(any(not row["base"] or row["check"] not in ("", *preparation.READY) for row in rows))


def _tell(found: CheckedTask) -> None:
    output.talk(f"{found.task}: self-check {found.self_check}")
