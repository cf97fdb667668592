"""terminalbench, without an instance: how tasks are read, and how the judge runs tests."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from aenv.base.errors import ToolError
from tests.envs import terminalbench_tasks as shipped
from tests.envs.hostile_yaml import HOSTILE

SOURCE = shipped.FOLDER.parent / "src"


@pytest.fixture(autouse=True)
def _path() -> Iterator[None]:
    sys.path.insert(0, str(SOURCE))
    yield
    sys.path.remove(str(SOURCE))


def _module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, SOURCE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # a dataclass looks for its module there
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[name]
    return module


YAMLS = [
    "a: 1\nb: 2.5\nc: true\nd: null\ne: text with spaces\nf: \"quoted: \\\"x\\\"\"\ng: 'it''s'\n",
    "# comment\n---\nlist:\n  - one\n  - two # why\n  - 3\nother:\n- x\n- y\n",
    "text: |-\n  first\n\n    indented\n  last\nafter: 1\n",
    "text: |\n  first\n  last\n\nafter: 1\n",
    "text: >\n  one\n  two\n\n  three\nafter: 1\n",
    "people:\n  - key: base\n    description: |\n      Make it.\n      So.\n  - key: hard\n    description: so\n",
    "- command: echo 1\n  block: true\n  min_timeout_sec: 1.5\n- command: |\n    a\n    b\n  enter: false\n",
    "tags: [a, 'b c', 3]\nmore: {x: 1, y: two}\nempty: []\n",
    'long: this goes\n  on here\nquoted: "and this\n  too"\nurl: http://x/y#z\n',
    "text:\n  on lines\n  of its own\n\n  and a sidecar,\n\n\n  and a third\nafter: 1\n",
    "text: plain\n\n  with a break\n\nafter: 1\n",
    "outer:\n  inner:\n    deep: 1\n  beside: 2\nend: x\n",
    "",
]


@pytest.mark.parametrize("text", YAMLS)
def test_task_files_are_read_as_a_yaml_library_reads_them(text: str) -> None:
    assert _module("terminalbench_yaml").loads(text) == yaml.safe_load(text)


@pytest.mark.parametrize("text", ["a: &x 1\n", "a: 1\n  b: 2\n c: 3\n", 'a: "open\n', "a: 1\njust text\n"])
def test_what_cannot_be_read_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(ToolError, match=r"YAML line \d"):
        _module("terminalbench_yaml").loads(text)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_task_files_are_refused(text: str) -> None:
    with pytest.raises(ToolError, match="YAML"):
        _module("terminalbench_yaml").loads(text)


def test_times_in_task_files_stay_texts() -> None:
    assert _module("terminalbench_yaml").loads("tags: [2024-05-01]\n") == {"tags": ["2024-05-01"]}


def _task(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_both_formats_of_a_task_say_the_same() -> None:
    tasks = _module("terminalbench_tasks")
    old, new = (tasks.load(shipped.FOLDER / name) for name in ("top-words", "top-words-harbor"))
    assert new.instruction.startswith(old.instruction)
    assert (old.format, new.format) == ("version-1", "harbor")
    for task in (old, new):
        assert (task.agent_seconds, task.test_seconds) == (300.0, 60.0)
        assert (task.facts["category"], task.facts["tags"], task.canary) == ("text", ["text"], shipped.CANARY)


def test_tasks_that_need_what_is_not_there_are_refused(tmp_path: Path) -> None:
    tasks = _module("terminalbench_tasks")
    compose = "services:\n  client:\n    build: .\n  db:\n    image: x\nvolumes:\n  data:\n"
    several = _task(tmp_path / "several", {"task.yaml": "instruction: x\n", "docker-compose.yaml": compose})
    with pytest.raises(ToolError, match=r"2 containers \(client, db\)"):
        tasks.load(several)
    harbor = {
        "task.toml": "",
        "instruction.md": "x",
        "tests/test.sh": "",
        "environment/docker-compose.yaml": compose,
    }
    with pytest.raises(ToolError, match=r"2 containers \(client, db\)"):
        tasks.load(_task(tmp_path / "several-harbor", harbor))
    one = _task(
        tmp_path / "one", {"task.yaml": "instruction: x\n", "docker-compose.yaml": compose[:31] + "volumes:\n"}
    )
    assert tasks.load(one).id == "one"
    with pytest.raises(ToolError, match="parser 'swebench'"):
        tasks.load(_task(tmp_path / "other", {"task.yaml": "instruction: x\nparser_name: swebench\n"}))
    with pytest.raises(ToolError, match="no instruction"):
        tasks.load(_task(tmp_path / "empty", {"task.yaml": "difficulty: easy\n"}))
    with pytest.raises(ToolError, match=r"task\.toml of 'bad' cannot be read"):
        tasks.load(_task(tmp_path / "bad", {"task.toml": "= 1", "tests/test.sh": "", "instruction.md": "x"}))


def test_tasks_are_found_in_the_places_that_repositories_use(tmp_path: Path) -> None:
    tasks = _module("terminalbench_tasks")
    _task(tmp_path / "tasks" / "a", {"task.yaml": "instruction: x\n"})
    _task(tmp_path / "b", {"task.toml": "", "instruction.md": "x", "tests/test.sh": ""})
    _task(tmp_path / "no-task", {"README.md": ""})
    found = tasks.task_folders({"TERMINALBENCH_DATA_DIR": str(tmp_path)})
    assert [folder.name for folder in found] == ["a", "b"]
    assert len(tasks.task_folders({"TERMINALBENCH_DATA_DIR": str(tmp_path), "TERMINALBENCH_TASKS": "own"})) == 20
    with pytest.raises(ToolError, match="use 'own' or 'data'"):
        tasks.task_folders({"TERMINALBENCH_TASKS": "all"})
    with pytest.raises(ToolError, match="aenv data pull terminalbench"):
        tasks.task_folders({"TERMINALBENCH_DATA_DIR": str(tmp_path / "nowhere")})


def test_without_pytest_plain_tests_are_judged_all_the_same(tmp_path: Path) -> None:
    judge = _module("_terminalbench_judge")
    text = "def test_good():\n    pass\nclass TestX:\n    def test_bad(self):\n        assert 1 == 2\n"
    (tmp_path / "test_a.py").write_text(text)
    (tmp_path / "test_b.py").write_text("import nothing_like_this\n")
    files = [str(tmp_path / name) for name in ("test_a.py", "test_b.py")]
    try:
        found = judge._plainly(str(tmp_path), files)
    finally:
        sys.path.remove(str(tmp_path))
    assert found["tests"] == {
        "test_a.py::test_good": "passed",
        "test_a.py::TestX::test_bad": "failed",
        "test_b.py": "failed",
    }
    assert found["exit"] == 1


@pytest.mark.parametrize(
    "text",
    [
        "async def test_a():\n    assert False\n",
        "def test_a():\n    yield\n    assert False\n",
        "def test_a(tmp_path): ...\n",
        "class TestA:\n    def setup_method(self): self.x = 1\n    def test_a(self): assert self.x\n",
        "import unittest\nclass TestA(unittest.TestCase):\n    def test_a(self): self.fail()\n",
    ],
)
def test_tests_that_are_more_than_functions_are_left_to_pytest(tmp_path: Path, text: str) -> None:
    """Calling them would prove nothing: a coroutine that nobody awaits passes."""
    judge = _module("_terminalbench_judge")
    (tmp_path / "test_a.py").write_text(text)
    assert not judge._is_plain(judge._parsed(str(tmp_path / "test_a.py")))
    (tmp_path / "test_a.py").write_text("class TestA:\n    def test_a(self): ...\ndef test_b(): ...\n")
    assert judge._is_plain(judge._parsed(str(tmp_path / "test_a.py")))


def test_a_file_of_the_tests_that_changes_while_they_run_is_seen(tmp_path: Path) -> None:
    judge = _module("_terminalbench_judge")
    (tmp_path / "expected.txt").write_text("1")
    before = judge.main(str(tmp_path), runs=False)["stamps"]
    (tmp_path / "made.txt").write_text("")
    assert {name: stamp for name, stamp in judge._stamps(str(tmp_path)).items() if name in before} == before
    (tmp_path / "expected.txt").chmod(0o600)
    assert judge._stamps(str(tmp_path))["expected.txt"] != before["expected.txt"]


def test_modules_that_our_python_lacks_are_named(tmp_path: Path) -> None:
    judge = _module("_terminalbench_judge")
    (tmp_path / "beside.py").write_text("")
    (tmp_path / "test_a.py").write_text("import os, nothing_like_this.x\nimport beside\nfrom numpty import y\n")
    assert judge.main(str(tmp_path))["missing"] == ["nothing_like_this", "numpty"]
