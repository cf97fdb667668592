"""Who is ended first when memory is short: processes of instances, and none of them can change that."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from aenv.isolation.sandbox.inside_paths import OOM_SCORE
from tests.attacks.engines import AttackedEngine

LOWER = """
import os
said = []
for pid in ("self", "1"):
    for file in ("oom_score_adj", "oom_adj"):
        for value in ("-1000", "-17", "0", "499"):
            try:
                with open(f"/proc/{pid}/{file}", "w") as opened:
                    opened.write(value)
            except OSError:
                pass
    with open(f"/proc/{pid}/oom_score_adj") as opened:
        said.append(opened.read().strip())
"""


@pytest.mark.parametrize("how", ["tool", "exec"])
def test_no_process_of_an_instance_makes_itself_less_worth_ending(
    engine: AttackedEngine, instances: Any, how: str
) -> None:
    id = instances()
    if how == "tool":
        said = engine.evaluate(id, LOWER)
    else:
        done = engine.ask("exec", id=id, command=["python3", "-c", f"{LOWER}print(*said)"])
        said = done["stdout"].split()
    assert said == [OOM_SCORE, OOM_SCORE]


def test_a_process_of_the_host_can() -> None:
    raised = "open('/proc/self/oom_score_adj', 'w').write('500')\n" + LOWER.replace('("self", "1")', '("self",)')
    done = subprocess.run([sys.executable, "-c", f"{raised}print(*said)"], capture_output=True, text=True)
    assert done.stdout.split() == ["499"]
