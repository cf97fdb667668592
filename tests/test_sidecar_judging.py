"""The terminal of a sidecar, and what a verdict on it needs: nothing that an agent has left takes part."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

from aenv.base.http1 import Pool
from aenv.engines.base import Address, InstanceSpec, LazySidecar
from aenv.engines.native.engine import NativeEngine
from tests.sidecars import engine_with_lazy_sidecars

ENVIRONMENT = """
from typing import Any

from aenv import Sidecar, register_tool


@register_tool
async def sh(command: str, second: Sidecar) -> dict:
    return vars(await second.exec(command))


@register_tool
async def terminal(second: Sidecar, keys: str = "", wait: float = 0.0, history: bool = False) -> dict:
    return {"shown": await second.terminal(keys, wait=wait, history=history)}


@register_tool
async def python(code: str, second: Sidecar, arguments: dict = {}, timeout: float | None = None) -> dict:
    return vars(await second.python(code, arguments, timeout=timeout))


@register_tool
async def end(second: Sidecar) -> dict:
    before = await second.processes()
    await second.end_processes()
    return {"before": before, "after": await second.processes()}


@register_tool
async def restore(second: Sidecar) -> dict:
    return {"changed": await second.restore()}


@register_tool
async def put(path: str, files: dict, second: Sidecar) -> dict:
    await second.put_folder(path, {name: text.encode() for name, text in files.items()}, ["run.sh"])
    return {}
"""
DOCKERFILE = """
FROM ubuntu:24.04
COPY --chmod=755 <<END /usr/local/bin/own
#!/bin/sh
echo mine
END
"""

Call = Callable[..., Awaitable[Any]]

# One engine for all: its zygotes take longer to start than anything that is tested here.
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[NativeEngine]:
    async with engine_with_lazy_sidecars(tmp_path_factory.mktemp("home")) as engine:
        yield engine


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def built(engine: NativeEngine, tmp_path_factory: pytest.TempPathFactory) -> Address:
    """An instance whose sidecar has a root of its own, in which /usr can be written to."""
    folder = tmp_path_factory.mktemp("env")
    (folder / "judging.py").write_text(ENVIRONMENT)
    task = tmp_path_factory.mktemp("task") / "Dockerfile"
    task.write_text(DOCKERFILE)
    return await engine.create(InstanceSpec("judged-1", "judged@1.0.0", folder, sidecar=LazySidecar(task)))


@pytest_asyncio.fixture(loop_scope="module")
async def call(built: Address) -> AsyncIterator[Call]:
    async with Pool() as pool:

        async def call(name: str, **arguments: Any) -> Any:
            body = json.dumps(arguments).encode()
            head = [("content-type", "application/json")]
            response = await pool.request(built.origin, "POST", f"/tools/{name}", head, body)
            data = json.loads(await response.read())["data"]
            return data["content"][0]["text"] if data["is_error"] else data["structured"]

        yield call


async def test_the_terminal_shows_what_is_typed_and_keeps_its_state(call: Call) -> None:
    await call("terminal", keys="cd /tmp; COLOUR=blue\r")
    shown = (await call("terminal", keys="echo $COLOUR in $PWD; tty\r"))["shown"]
    assert "blue in /tmp" in shown and "/dev/pts/" in shown
    await call("terminal", keys="sleep 1000\r")
    assert (await call("terminal", keys="\x03echo stopped: $?\r"))["shown"].endswith(
        "stopped: 130\nroot@instance:/tmp#"
    )


async def test_programs_that_draw_on_the_terminal_are_seen_as_they_look(call: Call) -> None:
    await call("terminal", keys="clear\r")
    shown = (await call("terminal", keys=r"printf 'abc\rX\033[2;10Hthere\n'" + "\r"))["shown"]
    assert shown.splitlines()[1].startswith("X") and shown.splitlines()[1][9:14] == "there"
    await call("terminal", keys="seq 1 100\r")
    assert "\n42\n" not in (await call("terminal"))["shown"]
    assert "\n42\n" in (await call("terminal", history=True))["shown"]


async def test_a_shell_that_has_ended_is_started_anew(call: Call) -> None:
    await call("terminal", keys="LOST=1; exit\r", wait=5.0)
    assert "<>" in (await call("terminal", keys='echo "<$LOST>"\r'))["shown"]


async def test_code_runs_with_our_python_and_gives_back_what_it_found(call: Call) -> None:
    code = "import sys\ndef main(a, b):\n    print('said')\n    return {'sum': a + b, 'path': sys.path}\n"
    done = await call("python", code=code, arguments={"a": 1, "b": 2})
    assert (done["exit_code"], done["stdout"], done["answer"]["sum"]) == (0, "said\n", 3)
    failed = await call("python", code="def main():\n    raise ValueError('no')\n")
    assert (failed["exit_code"], failed["answer"]) == (1, None) and "ValueError: no" in failed["stderr"]
    late = await call("python", code="import time\ndef main():\n    time.sleep(1000)\n", timeout=0.2)
    assert (late["exit_code"], late["answer"]) == (124, None)


async def test_code_that_runs_there_cannot_be_looked_into_nor_can_the_service(call: Call) -> None:
    attack = (
        "for p in 1 $PPID; do ls -l /proc/$p/fd/; cat /proc/$p/environ /proc/$p/maps; (: > /proc/$p/mem); done"
    )
    options = "shell=True, capture_output=True, text=True"
    code = f"import subprocess\ndef main():\n    return vars(subprocess.run({attack!r}, {options}))"
    said = (await call("python", code=code))["answer"]
    assert "->" not in said["stdout"] and "=" not in said["stdout"]
    for pid in ("1", "(?!1/)[0-9]+"):
        for file in ("environ", "maps", "mem"):
            denied = f"/proc/{pid}/{file}: (permission denied|read-only file system)"
            assert re.search(denied, said["stderr"], re.IGNORECASE)


async def test_all_processes_can_be_ended_also_those_that_start_others_all_the_time(call: Call) -> None:
    await call("sh", command="setsid sh -c 'while :; do sleep 1000 & sleep 0.001; done' >/dev/null 2>&1 &")
    await call("terminal", keys="sleep 1000 & \r")
    counts = await call("end")
    assert counts["before"] >= 2 and counts["after"] == 0
    assert "hi" in (await call("terminal", keys="echo hi\r"))["shown"]


async def test_the_programs_of_the_image_are_put_back(call: Call) -> None:
    attack = """
    rm /usr/bin/diff /bin && mkdir /bin && cp /usr/bin/true /usr/bin/diff && cp /usr/bin/true /bin/sh
    cp /usr/bin/true /usr/local/bin/cat; cp /usr/bin/true /usr/local/bin/new
    printf '#!/bin/sh\\necho yours\\n' > /usr/local/bin/own; touch -r /usr/bin/env /usr/local/bin/own
    echo /tmp/evil.so > /etc/ld.so.preload; echo /tmp > /etc/ld.so.conf.d/evil.conf
    """
    await call("sh", command=attack)
    changed = (await call("restore"))["changed"]
    assert {"/bin", "/etc/ld.so.preload", "/usr/local/bin/cat", "/usr/local/bin/own"} <= {*changed}
    assert "/usr/local/bin/new" not in changed
    done = await call("sh", command="own; ls /usr/local/bin; echo a > /tmp/a; echo b > /tmp/b; diff /tmp/a /tmp/b")
    assert (done["exit_code"], done["stdout"].startswith("mine\n")) == (1, True)
    assert (await call("restore"))["changed"] == []


async def test_what_is_added_to_run_by_itself_in_the_python_of_the_image_is_removed(call: Call) -> None:
    place = "$(python3 -c 'import os; print(os.path.dirname(os.__file__))')"
    done = await call(
        "sh", command=f"cd {place} && echo 'print(1)' | tee sitecustomize.py evil.pth >/dev/null; pwd"
    )
    folder = done["stdout"].strip()
    changed = (await call("restore"))["changed"]
    assert f"{folder}/evil.pth" in changed
    assert any(path.endswith("sitecustomize.py") for path in changed)
    assert (await call("sh", command="python3 -c pass"))["stdout"] == ""


async def test_a_folder_is_made_anew_whatever_was_at_its_place(call: Call) -> None:
    await call("sh", command="mkdir -p /else; echo no > /else/conftest.py; ln -s /else /tests")
    await call("put", path="/tests", files={"run.sh": "#!/bin/sh\necho ran", "deep/file": "x"})
    done = await call("sh", command="cd /tests && find . -type f | sort; ./run.sh; ls /else; rm -r /tests /else")
    assert done["stdout"] == "./deep/file\n./run.sh\nran\nconftest.py\n"


async def test_the_original_root_cannot_be_changed(call: Call) -> None:
    attack = (
        "touch /.original/x; rm -rf /.original/usr/bin/env; mv /.original /gone; ls /.original/usr/local/bin/own"
    )
    done = await call("sh", command=attack)
    assert done["stdout"] == "/.original/usr/local/bin/own\n"
    assert done["stderr"].count("Read-only file system") == 2 and "busy" in done["stderr"]
