"""Runs of an instance's tests, each on a fresh tree, in a process that is shut in, and what they say.

A *plain* run is what the benchmark's own harness does: the repository's own runner, in a process that holds
nothing of ours, and a log. It decides. A *control* runs the same tests under `_swebench_runner.py`, which watches
and says on a pipe how each ended: the tested code can forge a log, and not so easily this. Controls only refuse.

All of it in the main part, where no command of the agent's has ever run. The model's code does run here, as the
code that is tested; what it can see and touch is then its own tree. Not here: what runs mean
(`swebench_grading.py`), what of a patch does not count (`swebench_sealing.py`).
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any
from xml.etree import ElementTree

import _swebench_confine as confine
import swebench_patches as patches
from _swebench_runner import ERROR, FAILED, is_cut, names_of
from swebench_control import plant, spoil
from swebench_logs import statuses_printed
from swebench_pythons import Interpreter
from swebench_records import Record
from swebench_sealing import sealed_tree
from swebench_verdict import status_of, worse

_MOST_SAID_BYTES = 64 << 20
_PIECE_BYTES = 1 << 20
_TAIL = 20_000  # characters
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/proc", "/sys/devices/system")
_DEVICES = (
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/shm",
    "/dev/pts",
)
_ONE_FAILED = 1  # the exit code of every runner when a test has failed, and a canary always does


class Stopped(Exception):
    """The verdict is not wanted any more."""


@dataclass(frozen=True)
class Place:
    """Where a record is judged."""

    base: Path
    """The tree before the solution, which nothing changes."""
    variant: str
    """What that is, as every report says: "git …", "sdist variant …", "docker …"."""
    python: Path
    readable: tuple[Path, ...]
    """What the tests may see besides the system and their tree."""
    work: Path
    """A folder for one verdict after another."""
    tree: Path
    """Where the tree of a verdict lies: its interpreter knows it by this path."""
    packages: Path | None = None
    """What lies beside its interpreter, where the agent is to have the same; None when it has it already."""
    ready: Path | None = None
    """More of that, elsewhere."""
    interpreter: Interpreter | None = None
    """The Python behind it, where the agent is to have the same."""
    notes: tuple[str, ...] = ()
    missing: str = ""
    """The packages that the tests may need and that are not here, in words."""
    is_confined: bool = True


@dataclass
class PlainRun:
    """What the repository's own runner has printed, and how it ended."""

    sealed: list[str]
    """Files of the patch that did not count."""
    statuses: dict[str, str] = field(default_factory=dict)
    code: int = 0
    log: str = ""

    @property
    def output(self) -> str:
        """The end of what was printed."""
        return self.log[-_TAIL:]

    @property
    def lacks(self) -> str:
        """The runner that is not installed, if that is why no test ran."""
        return "pytest" if "No module named pytest\n" in self.log and not self.statuses else ""

    @property
    def hindrance(self) -> str:
        """Why the tests have not run to their end; empty when they may have."""
        if self.code == confine.TIMED_OUT:
            return "the tests took too long"
        if not self.statuses:
            return f"nothing shows that tests ran, and their exit code is {self.code}"
        return ""


@dataclass
class Control:
    """What a control has said, and how it ended."""

    statuses: dict[str, str] = field(default_factory=dict)
    canaries: dict[str, str] = field(default_factory=dict)
    expected: list[str] = field(default_factory=list)
    """The canaries that were planted."""
    told: set[str] = field(default_factory=set)
    """The tests that have an outcome, each once, whatever names it has."""
    changed: list[str] = field(default_factory=list)
    selected: int | None = None
    """How many tests were to run, where the runner can tell."""
    ended: int | None = None
    code: int = 0
    forged: str = ""

    def has_failed(self, test: str) -> bool:
        return status_of(test, self.statuses) in (FAILED, ERROR)

    @property
    def distrust(self) -> str:
        """Why what was said cannot be believed; empty when it can."""
        if self.forged:
            return self.forged
        if self.code == confine.TIMED_OUT:
            return "the tests took too long"
        if self.ended is None:
            return f"the tests ended early, with exit code {self.code}"
        if self.ended != self.code:
            return f"the tests' exit code is {self.code}, and should be {self.ended}"
        if self.changed:
            return f"the tested code has changed what decides about outcomes: {', '.join(self.changed)}"
        if self.selected is not None and self.selected != len(self.told):
            return f"{self.selected} tests were to run, and {len(self.told)} have an outcome"
        if any(self.canaries.get(one) not in (FAILED, ERROR) for one in self.expected):
            return "tests that must fail have not failed"
        if self.expected and self.code != _ONE_FAILED:
            return f"a test has failed, and the exit code is {self.code}"
        return ""


class Runs:
    """Runs a record's tests, one run at a time. `stop` ends the one at work."""

    def __init__(self, record: Record, place: Place) -> None:
        self._record = record
        self._place = place
        self._process: subprocess.Popen[bytes] | None = None
        self._is_stopped = False

    def stop(self) -> None:
        self._is_stopped = True
        if self._process:
            self._process.terminate()

    def plain(self, patch: str, timeout: float) -> PlainRun:
        """What the benchmark's harness would do with a patch. PatchError and Unfit as `sealed_tree` says."""
        with self._folder() as (folder, tree):
            run = PlainRun(sealed_tree(self._record, patch, self._place.base, tree))
            self._log(run, self._command(tree), folder, tree, timeout)
            run.statuses = statuses_printed(run.log, self._record.repo, self._record.runner)
        return run

    def skipped(self, patch: str, timeout: float) -> set[str]:
        """The expected tests that a plain run skips, as pytest's own report has them: logs do not name them."""
        with self._folder() as (folder, tree):
            run = PlainRun(sealed_tree(self._record, patch, self._place.base, tree))
            file = folder / "tmp" / "report.xml"
            self._log(run, [*self._command(tree), f"--junitxml={file}"], folder, tree, timeout)
            return {*_skipped(file, self._record.tests)}

    def control(self, patch: str, timeout: float, *, must_fail: bool = False) -> Control:
        """The same tests, watched; with `must_fail`, changed so that each fails at its end."""
        with self._folder() as (folder, tree):
            sealed_tree(self._record, patch, self._place.base, tree)
            files = test_files(self._record, tree)
            if must_fail:
                spoil(files, tree, self._record.runner)
            canaries = plant(files, tree, self._record.runner)
            return self._watched(folder, tree, files, canaries, timeout)

    @contextlib.contextmanager
    def _folder(self) -> Iterator[tuple[Path, Path]]:
        folder = self._place.work / f"verdict-{secrets.token_hex(8)}"
        tree = self._place.tree
        try:
            for name in ("tmp", "home"):
                (folder / name).mkdir(parents=True)
            shutil.rmtree(tree, ignore_errors=True)
            yield folder, tree
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            shutil.rmtree(tree, ignore_errors=True)

    def _command(self, tree: Path) -> list[str]:
        """The command of the benchmark's harness."""
        python, files = str(self._place.python), test_files(self._record, tree)
        match self._record.runner:
            case "django":
                settings = ("--verbosity", "2", "--settings=test_sqlite", "--parallel", "1")
                return [python, "tests/runtests.py", *settings, *files]
            case "sympy" if (tree / "bin" / "test").is_file():
                return [python, "bin/test", "-C", "--verbose", *files]
            case "sympy":
                # Releases lack that file, which calls no more than this.
                code = "import sys, sympy; sys.exit(not sympy.test(*sys.argv[1:], verbose=True))"
                return [python, "-c", code, *files]
        return [python, "-m", "pytest", "-rA", *files]

    def _order(self, command: list[str], folder: Path, tree: Path, timeout: float) -> dict[str, Any]:
        place = self._place
        variables = {
            "PATH": f"{place.python.parent}:/usr/local/bin:/usr/bin:/bin",
            "PYTHONHASHSEED": "0",  # one of those that it could have by chance
            "HOME": str(folder / "home"),
            "TMPDIR": str(folder / "tmp"),
            "LANG": "C.UTF-8",
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
        }
        if self._record.runner == "sympy":
            variables |= {"PYTHONWARNINGS": "ignore::UserWarning,ignore::SyntaxWarning", "SYMPY_USE_CACHE": "no"}
        return {
            "command": command,
            "folder": str(tree),
            "output": str(folder / "output"),
            "timeout": timeout,
            "confined": place.is_confined,
            "readable": [*_SYSTEM, str(folder / "runner"), *map(str, place.readable)],
            "writable": [str(tree), str(folder / "tmp"), str(folder / "home"), *_DEVICES],
            "variables": variables,
            "stdin": "",
        }

    def _log(self, run: PlainRun, command: list[str], folder: Path, tree: Path, timeout: float) -> None:
        with self._confined(self._order(command, folder, tree, timeout)) as process:
            assert process.stdout
            answer = process.stdout.read()
        run.code = _code(answer)
        with (folder / "output").open("rb") as output:
            run.log = output.read(_MOST_SAID_BYTES).decode(errors="replace")

    def _watched(self, folder: Path, tree: Path, files: list[str], canaries: list[str], timeout: float) -> Control:
        runner = folder / "runner"
        runner.mkdir()
        shutil.copy(Path(__file__).with_name("_swebench_runner.py"), runner)
        start = f"sys.path.insert(0, {str(runner)!r}); import _swebench_runner as runner; sys.path.pop(0)"
        # Neither variables nor the folder that it is in lead this Python to other modules.
        command = [str(self._place.python), "-I", "-c", f"import sys; {start}; runner.main()"]
        order = self._order(command, folder, tree, timeout)
        reader, writer = os.pipe()
        key = secrets.token_hex(16)
        inner = {
            "runner": self._record.runner,
            "folder": str(tree),
            "files": files,
            "expected": [*self._record.tests],
            "canaries": canaries,
            "repo": self._record.repo,
            "pipe": writer,
            "key": key,
        }
        order |= {"pipe": writer, "stdin": json.dumps(inner) + "\n"}
        with open(reader, "rb", buffering=0) as pipe:
            try:
                started = self._confined(order)
            finally:
                os.close(writer)
            with started as process:
                assert process.stdout
                said = _read(pipe, process.stdout)
                if len(said) > _MOST_SAID_BYTES:
                    process.terminate()
                answer = process.stdout.read()
        run = understood(said, key, canaries)
        run.code = _code(answer)
        return run

    def _confined(self, order: dict[str, Any]) -> subprocess.Popen[bytes]:
        if self._is_stopped:
            raise Stopped
        source = Path(__file__).parent
        code = (
            f"import sys; sys.path.insert(0, {str(source)!r}); import _swebench_confine; _swebench_confine.main()"
        )
        self._process = process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[order["pipe"]] if "pipe" in order else [],
            env={"LANG": "C.UTF-8"},
        )
        assert process.stdin
        with process.stdin as given:
            given.write(json.dumps(order).encode())
        return process


def _code(answer: bytes) -> int:
    return int(json.loads(answer)["code"]) if answer else confine.TIMED_OUT


def _read(pipe: IO[bytes], until: IO[bytes]) -> bytes:
    """What is written to a pipe until the other one has something or ends: others may keep this one open."""
    os.set_blocking(pipe.fileno(), False)
    said = bytearray()
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    poll.register(until, select.POLLIN)
    is_over = False
    while len(said) <= _MOST_SAID_BYTES and not is_over:
        is_over = any(ready == until.fileno() for ready, _ in poll.poll())
        while len(said) <= _MOST_SAID_BYTES and (piece := pipe.read(_PIECE_BYTES)):
            said += piece
        if piece == b"":
            break
    return bytes(said)


def understood(said: bytes, key: str, canaries: list[str]) -> Control:
    """What a runner has said on its pipe. One line that it has not said spoils it all."""
    run = Control(expected=canaries)
    lines = said.split(b"\n")
    if len(said) > _MOST_SAID_BYTES or lines.pop():
        run.forged = "the tests' report is not whole"
    for number, line in enumerate(lines):
        event = _event(line)
        if event.get("key") != key or event.get("number") != number:
            run.forged = "something else than the runner has written to the tests' report"
            break
        _take(run, event)
    return run


def _event(line: bytes) -> dict[str, Any]:
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def _take(run: Control, event: dict[str, Any]) -> None:
    match event:
        case {"event": "collected", "count": int(count)}:
            run.selected = count
        case {"event": "outcome", "names": list(names), "status": str(status)}:
            if canary := next((one for one in run.expected if any(one in name for name in names)), None):
                run.canaries[canary] = worse(run.canaries.get(canary), status)
            else:
                run.told.add(names[0])
                for name in names:
                    run.statuses[name] = worse(run.statuses.get(name), status)
        case {"event": "changed", "what": str(what)}:
            run.changed.append(what)
        case {"event": "end", "code": int(code)}:
            run.ended = code


def test_files(record: Record, tree: Path) -> list[str]:
    """What the runner is told to run: for pytest and sympy files, for Django labels, in the order of the tests."""
    touched = sorted(path for path in patches.paths(record.test_patch) if (tree / path).is_file())
    if record.runner == "pytest":
        named = dict.fromkeys(test.partition("::")[0] for test in record.tests if "::" in test)
        return [path for path in named if _is_within(tree, path)]
    tests = [path for path in touched if path.endswith(".py")]
    if record.runner == "sympy":
        return [path for path in tests if Path(path).name.startswith("test_")]
    return [path.removeprefix("tests/").removesuffix(".py").replace("/", ".") for path in tests]


def _is_within(tree: Path, path: str) -> bool:
    try:
        return patches.inside(tree, path).is_file()
    except patches.PatchError:
        return False


def _skipped(report: Path, tests: tuple[str, ...]) -> Iterator[str]:
    """Those of the tests that pytest's XML report has as skipped."""
    try:
        cases = [*ElementTree.parse(report).iter("testcase")]
    except (OSError, ElementTree.ParseError):
        return
    found = {(one.get("name"), one.get("classname")) for one in cases if one.find("skipped") is not None}
    for test in tests:
        plain, bracket, parameters = test.partition("[")
        file, *owners, name = plain.split("::")
        owner = ".".join([file.removesuffix(".py").replace("/", "."), *owners])
        name += bracket + parameters
        names = [one for one, by in found if by == owner and one]
        if any(name in names_of(one) or (is_cut(name) and one.startswith(name)) for one in names):
            yield test
