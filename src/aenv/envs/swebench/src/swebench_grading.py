"""The verdict on a patch: a fresh tree, the record's own tests, a process that is shut in, and what it says.

All of it in the first part, where no command of the agent's has ever run. The model's code does run here, as the
code that is tested; what it can see and touch is then its own tree. Not here: the rules (`swebench_verdict.py`),
what of a patch does not count (`swebench_sealing.py`).
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
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import _swebench_confine as confine
import swebench_patches as patches
from _swebench_runner import ERROR, FAILED
from swebench_control import plant, spoil
from swebench_records import Record
from swebench_sealing import Unfit, sealed_tree
from swebench_verdict import status_of, verdict, worse

_MOST_SAID_BYTES = 64 << 20
_PIECE_BYTES = 1 << 20
_TAIL_BYTES = 20_000
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
_PYTEST_REPO = "pytest-dev/pytest"


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
    packages: Path | None = None
    """What lies beside its interpreter, where the agent is to have the same; None when it has it already."""
    tree: Path | None = None
    """Where the tree must lie, when its packages know it by a path."""
    notes: tuple[str, ...] = ()
    is_confined: bool = True


class Run:
    """What a run of tests has said, and how it ended."""

    def __init__(self) -> None:
        self.statuses: dict[str, str] = {}
        self.canaries: dict[str, str] = {}
        self.told: set[str] = set()  # the tests that have an outcome, each once, whatever names it has
        self.uncollected: list[str] = []
        self.changed: list[str] = []
        self.selected: int | None = None  # how many tests were to run, where the runner can tell
        self.ended: int | None = None
        self.code = 0
        self.output = ""
        self.missing = ""
        self.forged = ""

    @property
    def has_evidence(self) -> bool:
        """Whether tests were at least looked for: one that cannot be imported is known to fail."""
        return bool(self.statuses or self.uncollected or self.ended is not None) and not self.missing

    def has_failed(self, test: str) -> bool:
        return status_of(test, self.statuses) in (FAILED, ERROR)

    def distrust(self, canaries: list[str]) -> str:
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
        if canaries and any(self.canaries.get(one) not in (FAILED, ERROR) for one in canaries):
            return "tests that must fail have not failed"
        if canaries and self.code != _ONE_FAILED:
            return f"a test has failed, and the exit code is {self.code}"
        return ""


class Grade:
    """The verdict on one patch."""

    def __init__(self, record: Record, variant: str, notes: Iterable[str] = ()) -> None:
        self.record = record
        self.variant = variant
        self.notes = [*notes]
        self.verdict = verdict({}, record.fail_to_pass, record.pass_to_pass)
        self.why_not = ""
        """What stands against it besides the tests."""
        self.invalid = ""
        """Why nothing can be said."""
        self.output = ""
        self.sealed: list[str] = []
        """Files of the patch that did not count."""

    @property
    def is_resolved(self) -> bool:
        return self.verdict.is_resolved and not self.why_not and not self.invalid

    def report(self) -> dict[str, Any]:
        """As the published environment answers, and what says more beside it."""
        tests = self.verdict.report()
        said: dict[str, Any] = {
            "resolved": self.is_resolved,
            "reward": float(self.is_resolved),
            "instance_id": self.record.id,
            "variant": self.variant,
            "tests": tests,
        }
        for name, value in (("invalid", self.invalid), ("why", self.why_not), ("notes", self.notes)):
            if value:
                said[name] = value
        if self.sealed:
            said["not_counted"] = self.sealed
        of_one = {key: said[key] for key in said if key not in ("instance_id", "reward", "tests")}
        said["stdout"] = json.dumps({self.record.id: {**of_one, "tests_status": tests}})
        said["returncode"] = 0 if self.is_resolved else 1
        said["stderr"] = "" if self.is_resolved else self.output
        return said


class Grader:
    """Judges patches of a record, one at a time. `stop` ends a verdict that nobody waits for any more."""

    def __init__(self, record: Record, place: Place) -> None:
        self._record = record
        self._place = place
        self._known: Run | None = None
        """What the reference solution makes of tests that must fail."""
        self._process: subprocess.Popen[bytes] | None = None

    def stop(self) -> None:
        if self._process:
            self._process.terminate()

    def grade(self, patch: str, timeout: float) -> Grade:
        """Run the expected tests on the base with `patch`."""
        grade = Grade(self._record, self._place.variant, self._place.notes)
        if not self._record.tests:
            grade.invalid = "the record names no tests: FAIL_TO_PASS and PASS_TO_PASS are empty"
            return grade
        try:
            run, canaries = self._run(patch, timeout, grade)
        except Unfit as error:
            grade.invalid = str(error)
        except patches.PatchError as error:
            grade.why_not = f"the patch does not apply: {error}"
        else:
            grade.output = run.output
            grade.why_not = run.distrust(canaries)
            grade.verdict = verdict(run.statuses, self._record.fail_to_pass, self._record.pass_to_pass)
            if not run.has_evidence and (why := self._without_it(run, patch, timeout)):
                grade.why_not, grade.invalid = "", why
            elif grade.is_resolved:
                grade.why_not = self._deceit(patch, timeout)
        return grade

    def _deceit(self, patch: str, timeout: float) -> str:
        """Why a patch that resolves does not: with tests that must fail, some do not, and do with the solution."""
        control, canaries = self._run(patch, timeout, Grade(self._record, ""), must_fail=True)
        if why := control.distrust(canaries):
            return f"with tests that must fail: {why}"
        left = [test for test in self._record.tests if not control.has_failed(test)]
        if not left or patch == self._record.gold:
            return ""
        # Some cannot be made to fail, such as those that are skipped here: then not by the solution either.
        known, canaries = (self._known, []) if self._known else self._solved(timeout)
        if why := known.distrust(canaries):
            return f"with the reference solution and tests that must fail: {why}"
        self._known = known
        odd = [test for test in left if known.has_failed(test)]
        return f"the tested code has decided about outcomes: {', '.join(odd[:5])}" if odd else ""

    def _solved(self, timeout: float) -> tuple[Run, list[str]]:
        try:
            return self._run(self._record.gold, timeout, Grade(self._record, ""), must_fail=True)
        except patches.PatchError:
            return self._run("", timeout, Grade(self._record, ""), must_fail=True)

    def _without_it(self, run: Run, patch: str, timeout: float) -> str:
        """Whether the tests run without the patch: else it is not the patch's fault that they did not."""
        if not run.missing and patch.strip():
            control, _ = self._run("", timeout, Grade(self._record, ""))
            if control.has_evidence:
                return ""
            run = control
        if run.missing:
            return f"no test could run: {run.missing} is missing; put its wheels into the data folder's 'wheels'"
        return f"nothing shows that tests ran; the last that was printed:\n{run.output[-1500:]}"

    def _run(self, patch: str, timeout: float, grade: Grade, *, must_fail: bool = False) -> tuple[Run, list[str]]:
        with self._folder() as (folder, tree):
            grade.sealed = sealed_tree(self._record, patch, self._place.base, tree)
            files = test_files(self._record, tree)
            if must_fail:
                spoil(files, tree, self._record.runner)
            canaries = plant(files, tree, self._record.runner)
            order = self._order(folder, tree, files, canaries, timeout)
            return self._said(order, canaries, folder / "output"), canaries

    @contextlib.contextmanager
    def _folder(self) -> Iterator[tuple[Path, Path]]:
        folder = self._place.work / f"verdict-{secrets.token_hex(8)}"
        tree = self._place.tree or folder / "testbed"
        try:
            for name in ("tmp", "home"):
                (folder / name).mkdir(parents=True)
            shutil.rmtree(tree, ignore_errors=True)
            yield folder, tree
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            if self._place.tree:
                shutil.rmtree(tree, ignore_errors=True)

    def _order(
        self, folder: Path, tree: Path, files: list[str], canaries: list[str], timeout: float
    ) -> dict[str, Any]:
        record, place = self._record, self._place
        paths = [str(path) for path in (tree / "src", tree / "lib", tree) if path.is_dir()]
        inner = {
            "runner": record.runner,
            "folder": str(tree),
            "files": files,
            "expected": [*record.tests],
            "canaries": canaries,
            "repo": record.repo,
            "paths": paths,
            "first": paths if record.repo == _PYTEST_REPO else [],
        }
        runner = folder / "runner"
        runner.mkdir()
        start = f"sys.path.insert(0, {str(runner)!r}); import _swebench_runner as runner; sys.path.pop(0)"
        shutil.copy(Path(__file__).with_name("_swebench_runner.py"), runner)
        return {
            "inner": inner,
            # Neither variables nor the folder that it is in lead this Python to other modules.
            "command": [str(place.python), "-I", "-c", f"import sys; {start}; runner.main()"],
            "folder": str(tree),
            "output": str(folder / "output"),
            "timeout": timeout,
            "confined": place.is_confined,
            "readable": [*_SYSTEM, str(runner), *map(str, place.readable)],
            "writable": [str(tree), str(folder / "tmp"), str(folder / "home"), *_DEVICES],
            "variables": {
                "PATH": f"{place.python.parent}:/usr/local/bin:/usr/bin:/bin",
                "PYTHONPATH": ":".join(paths),  # for what tests start
                "PYTHONDONTWRITEBYTECODE": "1",
                "PYTHONHASHSEED": "0",
                "HOME": str(folder / "home"),
                "TMPDIR": str(folder / "tmp"),
                "LANG": "C.UTF-8",
                "LC_ALL": "C.UTF-8",
                "TZ": "UTC",
            },
        }

    def _said(self, order: dict[str, Any], canaries: list[str], output: Path) -> Run:
        reader, writer = os.pipe()
        key = secrets.token_hex(16)
        order["pipe"] = writer
        order["stdin"] = json.dumps({**order.pop("inner"), "pipe": writer, "key": key}) + "\n"
        source = Path(__file__).parent
        code = (
            f"import sys; sys.path.insert(0, {str(source)!r}); import _swebench_confine; _swebench_confine.main()"
        )
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", code],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=[writer],
                env={"LANG": "C.UTF-8"},
            )
        except BaseException:
            os.close(reader)
            raise
        finally:
            os.close(writer)
        with open(reader, "rb", buffering=0) as pipe, self._process as process:
            assert process.stdin
            assert process.stdout
            with process.stdin as given:
                given.write(json.dumps(order).encode())
            said = _read(pipe, process.stdout)
            if len(said) > _MOST_SAID_BYTES:
                process.terminate()
            answer = process.stdout.read()
        self._process = None
        run = understood(said, key, canaries)
        run.code = json.loads(answer)["code"] if answer else confine.TIMED_OUT
        run.output = _tail(output)
        return run


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


def understood(said: bytes, key: str, canaries: list[str]) -> Run:
    """What a runner has said on its pipe. One line that it has not said spoils it all."""
    run = Run()
    lines = said.split(b"\n")
    if len(said) > _MOST_SAID_BYTES or lines.pop():
        run.forged = "the tests' report is not whole"
    for number, line in enumerate(lines):
        event = _event(line)
        if event.get("key") != key or event.get("number") != number:
            run.forged = "something else than the runner has written to the tests' report"
            break
        _take(run, event, canaries)
    return run


def _event(line: bytes) -> dict[str, Any]:
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def _take(run: Run, event: dict[str, Any], canaries: list[str]) -> None:
    match event:
        case {"event": "collected", "count": int(count)}:
            run.selected = count
        case {"event": "outcome", "names": list(names), "status": str(status)}:
            if canary := next((one for one in canaries if any(one in name for name in names)), None):
                run.canaries[canary] = worse(run.canaries.get(canary), status)
            else:
                run.told.add(names[0])
                for name in names:
                    run.statuses[name] = worse(run.statuses.get(name), status)
        case {"event": "uncollected", "what": str(what)}:
            run.uncollected.append(what)
        case {"event": "changed", "what": str(what)}:
            run.changed.append(what)
        case {"event": "missing", "what": str(what)}:
            run.missing = what
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


def _tail(file: Path) -> str:
    try:
        with file.open("rb") as output:
            output.seek(max(0, file.stat().st_size - _TAIL_BYTES))
            return output.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
