"""Two gateways on one home: what one that was killed had made ahead is removed by the other."""

from __future__ import annotations

import contextlib
import fnmatch
import os
import signal
import sqlite3
from pathlib import Path

import pytest

from aenv.base.http1 import Pool
from aenv.engines.folder import InstanceFolder
from tests.gateways import composed, make_project
from tests.native import group_name
from tests.test_gateway_process import Program
from tests.test_zygotes import engine_of

pytestmark = pytest.mark.slow  # two gateways, and instances made ahead


def left_by(home: Path, pid: int) -> list[str]:
    """Folders and control groups with this pid in their name. Others come and go while this looks."""
    tops = [path for path, *_ in os.walk("/sys/fs/cgroup") if os.path.basename(path) == group_name(home)]
    groups = [os.path.join(top, name) for top in tops for name in fnmatch.filter(os.listdir(top), f"*[.-]{pid}-*")]
    return [*groups, *map(str, (home / "run" / "instances").glob(f"spare.{pid}-*"))]


def group_of(home: Path, id: str) -> str:
    return str(InstanceFolder(home / "run" / "instances", id).read_state().group)


async def test_what_a_killed_gateway_had_made_ahead_is_swept_and_its_instances_live(tmp_path: Path) -> None:
    home, project = tmp_path / "home", make_project(tmp_path, warmPool=3)
    program = Program(home, project, engine="native")
    async with Pool() as pool:
        gateway = await program.ready(pool, home)
        kept = await gateway.create()
        while (await gateway.ask("PUT", "/env/echo/1.0.0/warm", {"count": 3}))[1]["data"]["ready"] < 3:
            pass
        async with engine_of(home) as engine, composed(home, project, engine=engine) as other:
            await program.end(signal.SIGKILL)
            assert len(left_by(home, program.pid)) > 3
            with contextlib.closing(sqlite3.connect(home / "aenv.db", isolation_level=None)) as db:
                db.execute("DELETE FROM leases")  # half a minute later
            await other.upkeep.tend()
            assert {Path(path).name for path in left_by(home, program.pid)} == {group_of(home, kept["id"])}
            assert (await other.instances.get(kept["id"])).is_live
            await other.instances.delete(kept["id"])
    assert left_by(home, program.pid) == []
