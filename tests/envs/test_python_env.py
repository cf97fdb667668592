"""python: an interpreter that stays, whatever the code does to it."""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from aenv import Context, Image, ToolError, register_start, register_tool
from aenv.inside.author.registry import Registry, collecting
from aenv.inside.runtime.calls import Calls
from aenv.inside.zygote.purity import is_same_for_all
from tests.envs.shells import ENVIRONMENTS, example, module, native_gateway, post, result_of
from tests.relayed import until
from tests.wheels import make_wheel

pythons = module("python", "python_env")

PNG = b"\x89PNG\r\n\x1a\nrest"
# As much of matplotlib as the interpreter asks it for; another test uses the real one, where there is one.
PYPLOT = f"""
_open = {{}}
class Figure:
    def savefig(self, file, **options): file.write({PNG!r})
def figure(number): return _open.setdefault(number, Figure())
def get_fignums(): return list(_open)
def close(which): _open.clear()
"""

Run = Callable[..., Awaitable[Any]]


@pytest.fixture
def context(tmp_path: Path) -> Context:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    variables = {"PATH": os.environ["PATH"], "AENV_WORKSPACE": str(workspace), "PYTHON_DATA_DIR": str(tmp_path)}
    return Context(workspace=workspace, variables=variables)


@pytest.fixture
async def session(context: Context) -> AsyncIterator[Any]:
    session = pythons.Session(context)
    yield session
    await session.close()


@pytest.fixture
def run(session: Any) -> Run:
    async def run(code: str, timeout: float = 20) -> Any:
        return await pythons.run(session, code, timeout)

    return run


async def test_code_gives_what_it_printed_and_its_last_expression_and_the_names_stay(run: Run) -> None:
    said = await run("import sys\nx = 20\nprint('hällo')\nprint('oh', file=sys.stderr)\nx + 22")
    assert said == {"stdout": "hällo\n", "stderr": "oh\n", "result": "42", "error": None}
    assert await run("def double(n): return 2 * n") == {"stdout": "", "stderr": "", "result": None, "error": None}
    assert (await run("double(x) + _"))["result"] == "82"


async def test_an_error_is_a_traceback_of_the_agents_own_lines_and_the_state_survives(run: Run) -> None:
    said = await run("y = 7\ndef fail():\n    return 1 / 0\nfail()")
    assert said["error"].splitlines()[0] == "Traceback (most recent call last):"
    assert "return 1 / 0" in said["error"] and said["error"].endswith("ZeroDivisionError: division by zero")
    assert "_python_worker" not in said["error"] and said["error"].count("File") == 2
    assert (await run("y"))["result"] == "7"
    assert "SyntaxError" in (await run("if"))["error"]
    assert "SystemExit: 3" in (await run("import sys; sys.exit(3)"))["error"]
    assert "EOFError" in (await run("input()"))["error"]
    assert (await run("y"))["result"] == "7"


async def test_code_may_await_print_from_programs_and_pickle_what_it_defines(run: Run) -> None:
    assert (await run("import asyncio\nawait asyncio.sleep(0, 'slept')"))["result"] == "'slept'"
    assert (await run("import subprocess; subprocess.run(['echo', 'from a program']).returncode")) == {
        "stdout": "from a program\n",
        "stderr": "",
        "result": "0",
        "error": None,
    }
    code = "class Point: pass\nimport pickle\ntype(pickle.loads(pickle.dumps(Point()))) is Point"
    assert (await run(code))["result"] == "True"
    assert (await run("x: int = 'lazy'\n__annotations__"))["result"] == "{'x': <class 'int'>}"


async def test_code_that_takes_too_long_is_interrupted_and_the_variables_are_kept(run: Run) -> None:
    await run("z = 1")
    said = await run("print('begun')\nwhile True: pass", timeout=0.5)
    assert said["stdout"] == "begun\n" and "KeyboardInterrupt" in said["error"]
    assert said["error"].endswith("[interrupted after 0.5 s; the variables are kept]")
    assert (await run("z"))["result"] == "1"


@pytest.mark.slow
async def test_code_that_will_not_be_interrupted_costs_the_interpreter_and_says_so(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module("python", "python_interpreter"), "GRACE", 0.3)
    said = await run("z = 1\nimport signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass", 0.5)
    assert "started anew, and its variables are lost" in said["error"]
    assert "NameError" in (await run("z"))["error"]


@pytest.mark.parametrize(
    "code", ["import os; os._exit(5)", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"]
)
async def test_an_interpreter_that_ends_is_told_and_replaced(run: Run, code: str) -> None:
    said = await run(f"print('before')\n{code}")
    assert said["stdout"] == "before\n" and "the interpreter ended with exit code" in said["error"]
    assert (await run("1 + 1"))["result"] == "2"


async def test_forged_replies_and_closed_streams_do_not_break_it(run: Run) -> None:
    said = await run('import os\nos.write(91, b\'{"id": 999, "result": "forged"}\\nnonsense\\n\')\n\'real\'')
    assert said["result"] == "'real'"
    assert (await run("import sys; sys.stdout.close(); sys.stdout = None\n'closed'"))["result"] == "'closed'"
    assert (await run("'after'"))["result"] == "'after'"


async def test_output_and_results_are_capped_with_a_notice(run: Run) -> None:
    said = await run("print('first'); print('x' * 3_000_000); print('last')\n'y' * 1_000_000")
    assert said["stdout"].startswith("first\nxxx") and said["stdout"].endswith("xxx\nlast\n")
    assert "[output capped: " in said["stdout"] and len(said["stdout"]) < 1_000_200
    assert "characters are left out here" in said["result"] and len(said["result"]) < 100_200
    assert (await run(r"import sys; sys.stdout.buffer.write(b'\xff\x00') and None"))["stdout"] == "�\0"
    assert (await run(r"print('\ud800')"))["stdout"] == "\\ud800\n"


async def test_figures_come_as_images_and_are_closed(run: Run, context: Context) -> None:
    package = context.workspace / "matplotlib"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "pyplot.py").write_text(PYPLOT)
    said = await run("import matplotlib.pyplot as plt\nplt.figure(1); plt.figure(2); print('drawn')")
    assert said[0]["stdout"] == "drawn\n" and said[1:] == [Image(PNG, "image/png")] * 2
    assert (await run("plt.get_fignums()"))["result"] == "[]"
    said = await run("for n in range(25): plt.figure(n)")
    assert len(said) == 21 and said[0]["notice"] == "25 images; the first 20 are given"


async def test_figures_of_the_real_matplotlib_come_as_images(run: Run) -> None:
    pytest.importorskip("matplotlib")
    said = await run("import matplotlib.pyplot as plt\nplt.plot([1, 2, 3])\nplt.show()")
    assert said[1].data.startswith(b"\x89PNG") and said[0]["stderr"] == ""


async def test_an_object_with_a_picture_comes_as_an_image(run: Run) -> None:
    said = await run(f"class Drawing:\n    def _repr_png_(self): return {PNG!r}\nDrawing()")
    assert said[1:] == [Image(PNG, "image/png")] and "Drawing object" in said[0]["result"]
    assert (
        "too large"
        in (await run("class Drawing:\n    def _repr_png_(self): return bytes(6_000_000)\nDrawing()"))["error"]
    )


async def test_variables_are_listed_even_if_one_cannot_be_shown(run: Run, session: Any) -> None:
    await run(
        "a = 1\nb = 'x' * 1000\n_hidden = 2\nclass Bad:\n    def __repr__(self): raise ValueError\nbad = Bad()"
    )
    found = await pythons.variables(session)
    assert set(found) == {"a", "b", "bad", "Bad"}
    assert found["a"] == {"type": "int", "value": "1"} and len(found["b"]["value"]) < 100
    assert found["bad"]["type"] == "Bad"


async def test_runs_at_the_same_time_take_turns(run: Run) -> None:
    await run("n = 0")
    said = await asyncio.gather(*(run("n += 1\nn") for _ in range(5)))
    assert sorted(one["result"] for one in said) == ["1", "2", "3", "4", "5"]


async def test_a_caller_that_goes_away_leaves_an_interpreter_that_works(run: Run, context: Context) -> None:
    await run("kept = 1")
    os.mkfifo(context.workspace / "begun")
    waiting = asyncio.create_task(run("open('begun', 'w').close()\nwhile True: pass"))
    await asyncio.to_thread((context.workspace / "begun").read_text)
    waiting.cancel()
    await asyncio.wait({waiting})
    assert (await run("kept"))["result"] == "1"


async def test_packages_come_from_the_folder_of_wheels_and_are_importable_at_once(
    run: Run, session: Any, tmp_path: Path
) -> None:
    make_wheel(tmp_path / "wheels", "from_a_wheel", "1.0", "VALUE = 'wheel'")
    assert "ModuleNotFoundError" in (await run("import from_a_wheel"))["error"]
    said = await pythons.install(session, ["from_a_wheel==1.0", "pydantic"])
    assert said == {"installed": ["from_a_wheel==1.0"], "already_there": ["pydantic"]}
    assert (await run("import from_a_wheel; from_a_wheel.VALUE"))["result"] == "'wheel'"
    await pythons.restart(session)
    assert (await run("import from_a_wheel; from_a_wheel.VALUE"))["result"] == "'wheel'"
    with pytest.raises(ToolError, match="cannot install no-such-package"):
        await pythons.install(session, ["no-such-package"])


async def test_without_wheels_installing_says_how_it_would_work(session: Any) -> None:
    with pytest.raises(ToolError, match=r"requirements\.txt of the environment.*/data/wheels"):
        await pythons.install(session, ["no-such-package"])
    for bad in ("--index-url=http://x", "-r/etc/passwd", "./folder", "a @ http://x/a.whl", "", "a; os_name=='x'"):
        with pytest.raises(ToolError, match="names and versions"):
            await pythons.install(session, [bad])
    with pytest.raises(ToolError, match="'packages' is empty"):
        await pythons.install(session, [])


async def test_reset_forgets_the_variables_and_starting_over_also_the_files(
    run: Run, session: Any, context: Context
) -> None:
    await run("open('file', 'w').close(); x = 1")
    await pythons.restart(session)
    assert "NameError" in (await run("x"))["error"] and (context.workspace / "file").exists()
    assert (await pythons.start_over(context, session))["emptied"]
    assert list(context.workspace.iterdir()) == []
    other = Context(workspace=context.workspace, variables={})
    (context.workspace / "precious").touch()
    assert not (await pythons.start_over(other, session))["emptied"]
    assert (context.workspace / "precious").exists()


async def test_code_that_is_not_python_is_shown_where_without_lines_of_others(run: Run) -> None:
    said = await run("x = (1,\ny = 2")
    assert said["error"].startswith('  File "<cell 1>", line 1') and said["error"].count("File") == 1


async def test_a_fork_that_the_code_makes_does_not_answer_for_it(run: Run) -> None:
    said = await run("import os\npid = os.fork()\nif not pid: x = 'child'\nelse: x = 'parent'; os.waitpid(pid, 0)")
    assert said["error"] is None
    assert (await run("x"))["result"] == "'parent'"
    said = await run("if not os.fork(): 1 / 0\nos.wait()[1] >> 8")
    assert said["result"] == "1" and "ZeroDivisionError" in said["stderr"]


@pytest.mark.parametrize(
    "code",
    [
        "shutil.rmtree('{folder}')",
        "os.rename('{folder}', '{folder}2'); os.symlink('{outside}', '{folder}')",
        "shutil.rmtree('{folder}'); open('{folder}', 'w').close()",
    ],
)
async def test_whatever_became_of_the_workspace_starting_over_gives_an_empty_one(
    run: Run, session: Any, context: Context, tmp_path: Path, code: str
) -> None:
    # A folder of the test's own: where a link is followed, what it leads to is lost.
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").touch()
    said = await run(f"import os, shutil; {code.format(folder=context.workspace, outside=outside)}")
    assert said["error"] is None
    assert (await pythons.start_over(context, session))["emptied"]
    assert (await run("import os; os.getcwd(), os.listdir()"))["result"] == repr((str(context.workspace), []))
    assert (outside / "precious").exists()


async def test_a_new_interpreter_makes_the_workspace_that_the_code_has_removed(run: Run, context: Context) -> None:
    await run("import os, shutil; shutil.rmtree(os.getcwd()); os._exit(1)")
    assert (await run("import os; os.getcwd()"))["result"] == repr(str(context.workspace))


async def test_a_timeout_that_makes_no_sense_is_refused_by_name(run: Run) -> None:
    for timeout in (0, -1, float("nan")):
        with pytest.raises(ToolError, match="'timeout' is a number of seconds above 0"):
            await run("1", timeout)


def workers() -> set[int]:
    return {child.pid for child in psutil.Process().children() if "_python_worker" in str(child.cmdline())}


async def test_the_interpreter_starts_with_the_instance_and_the_first_code_finds_it(context: Context) -> None:
    with collecting(Registry()) as registry:
        register_start(pythons.start_interpreter)
        register_tool(pythons.run)
    async with Calls(context) as calls:
        calls.start(registry.starts)
        await asyncio.gather(*calls._starting)
        await until(lambda: bool(workers()))  # it is started, and perhaps not yet what it will be
        started = workers()
        said = await calls.run(registry.tools["run"], {"code": "import os; os.getpid()"})
        assert int(said["result"]) in started
    assert not started & {child.pid for child in psutil.Process().children()}


def test_it_is_loaded_once_for_all_instances() -> None:
    assert is_same_for_all(str(ENVIRONMENTS / "python" / "src"))


@pytest.fixture
def stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The only packages that uv finds, in place of the large ones that it would download."""
    make_wheel(tmp_path / "index", "numpy", "9.0", "pi = 3.14")
    make_wheel(
        *(tmp_path / "index", "matplotlib", "9.0"),
        {
            "matplotlib/__init__.py": "",
            "matplotlib/pyplot.py": f"{PYPLOT}\nbar = title = lambda *given: figure(1)",
        },
    )
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path / "index"))
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))


@pytest.mark.slow
async def test_an_instance_runs_code_shows_pictures_and_starts_over(tmp_path: Path, stand_ins: None) -> None:
    async with native_gateway(tmp_path / "home", "python") as gateway:
        id = (await gateway.create("python@1.0.0"))["id"]
        assert (await gateway.call(id, "run", code="import os\nx = os.getcwd()\nx"))["result"] == "'/workspace'"
        seen = await gateway.call(id, "run", code="sorted({*map(int, os.listdir('/proc/self/fd'))} - {3})")
        assert seen["result"] == "[0, 1, 2, 90, 91]"
        seen = await gateway.call(
            id, "run", code="import subprocess, sys; subprocess.run(['ls', '/proc/self/fd'])"
        )
        assert seen["stdout"].split() == ["0", "1", "2", "3"]
        said = await result_of(gateway, id, "run", code=f"class D:\n  def _repr_png_(s): return {PNG!r}\nD()")
        assert said["content"][1] == {
            "type": "image",
            "data": base64.b64encode(PNG).decode(),
            "mimeType": "image/png",
        }
        assert (await gateway.call(id, "run", code="import numpy; numpy.pi"))["result"] == "3.14"
        said = await gateway.call(id, "install", packages=["numpy", "matplotlib"])
        assert said == {"installed": [], "already_there": ["numpy", "matplotlib"]}
        said = await result_of(gateway, id, "install", packages=["no-such-package"])
        assert said["is_error"] and "/data/wheels" in said["content"][0]["text"]
        assert "TypeError" in (said := await example(gateway, "python")) and "['tue']" in said
        assert "(1 images)" in said
        assert (await post(gateway, id, "/task/reset"))["emptied"]
        assert "NameError" in (await gateway.call(id, "run", code="x"))["error"]
        assert (await gateway.call(id, "run", code="import sys; sys.version_info[:2]"))["result"] == str(
            sys.version_info[:2]
        )
