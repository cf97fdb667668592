"""Logs of test runs, as the harness of the benchmark writes and reads them: what each test's status was.

For logs of our own plain runs, and for those that came from elsewhere. The tested code can print whatever it
likes: a log alone proves nothing, and our verdicts ask a control besides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from _swebench_runner import ERROR, FAILED, PASSED, SKIPPED, XFAIL, unittest_names
from swebench_verdict import Verdict, verdict

_STATUSES = (FAILED, PASSED, SKIPPED, ERROR, XFAIL)
_START, _END = ">>>>> Start Test Output", ">>>>> End Test Output"
_BROKEN = (">>>>> Patch Apply Failed", ">>>>> Reset Failed", ">>>>> Tests Errored", ">>>>> Tests Timed Out")
_EXIT_CODE = re.compile(r">>>>> Test Exit Code:\s*(-?\d+)")
_SKIPS = re.compile(r"\[\d+\]\Z")  # "SKIPPED [2] file:line: reason" counts, and names no test
_COLOURS = re.compile(r"\x1b?\[\d+m")
_CONTROLS = re.compile(r"[\x01-\x1f]")
_SYMPY_FAILURE = re.compile(r"_* (.*)\.py:(.*) _*")
_DJANGO_INTERRUPTIONS = (
    r"Testing against Django installed in (?s:.*?) silenced\)\.",
    r"Internal Server Error: /.*/",
    r"System check identified no issues \(0 silenced\)",
)

Statuses = dict[str, str]


@dataclass(frozen=True)
class LogGrade:
    """What a log says. `invalid` is why it says nothing; empty when it does."""

    statuses: Statuses
    verdict: Verdict
    invalid: str = ""

    @property
    def is_resolved(self) -> bool:
        return not self.invalid and self.verdict.is_resolved


def grade_log(
    text: str, repo: str, fail_to_pass: Iterable[str] = (), pass_to_pass: Iterable[str] = ()
) -> LogGrade:
    """Judge a log by the expected tests. Without evidence that tests ran it is invalid, and resolves nothing."""
    statuses, invalid = statuses_of(text, repo)
    return LogGrade(statuses, verdict(statuses, fail_to_pass, pass_to_pass), invalid)


def statuses_of(text: str, repo: str) -> tuple[Statuses, str]:
    """The status of each test of a log, and why there are none where there cannot be any."""
    if broken := next((mark for mark in _BROKEN if mark in text), ""):
        return {}, f"the log says {broken.lstrip('> ')!r}"
    if (_START in text) != (_END in text):
        return {}, "the log has only one of the marks that enclose the tests' output"
    parse = _PARSERS.get(repo, _pytest)
    statuses = parse(text.partition(_START)[2].partition(_END)[0]) if _START in text else {}
    statuses = statuses or parse(text)
    if not statuses:
        return {}, "nothing in the log shows that tests ran"
    code = _EXIT_CODE.search(text)
    if code and code[1] != "0" and not {FAILED, ERROR} & {*statuses.values()}:
        # Lines that say PASSED can be printed by anybody; the exit code comes from the harness.
        return {}, f"the tests ended with exit code {code[1]}, and the log names none that failed"
    return statuses, ""


def statuses_printed(text: str, repo: str, runner: str) -> Statuses:
    """The statuses that a run of our own has printed; a repository that is not known goes by its runner."""
    by_runner = {"django": _django, "sympy": _sympy}.get(runner, _pytest)
    found = _PARSERS.get(repo, by_runner)(text)
    if runner != "django":
        return found
    # Python 3.11 and those before it name a test differently, and data sets have either.
    return {other: status for name, status in found.items() for other in unittest_names(name)}


def _summary(text: str, clean: Callable[[str], str] = str) -> Iterator[tuple[str, list[str]]]:
    """The lines of pytest's short summary: a status, and the words after it."""
    for line in text.split("\n"):
        line = clean(line)
        if line.startswith(_STATUSES):
            status, *words = (line.replace(" - ", " ") if line.startswith(FAILED) else line).split()
            if words and not (status == SKIPPED and _SKIPS.match(words[0])):
                yield status, words


def _pytest(text: str) -> Statuses:
    return {words[0]: status for status, words in _summary(text)}


def _pytest_with_paths(text: str) -> Statuses:
    """Parameters that are paths depend on the machine: only their last part is kept."""
    return {_short_path(words[0]): status for status, words in _summary(text)}


def _short_path(name: str) -> str:
    match = re.search(r"(.*?)\[(.*)\]", name)
    if match is None:
        return name
    main, option = match.groups()
    if option.startswith("/") and not option.startswith("//") and "*" not in option:
        option = "/" + option.split("/")[-1]
    return f"{main}[{option}]"


def _pytest_matplotlib(text: str) -> Statuses:
    return _pytest(text.replace("MouseButton.LEFT", "1").replace("MouseButton.RIGHT", "3"))


def _pytest_whole(text: str) -> Statuses:
    """Names with their blanks, colours removed; old versions of pytest write the status last."""
    found: Statuses = {}
    for line in text.split("\n"):
        line = _CONTROLS.sub("", _COLOURS.sub("", line))
        if line.startswith(_STATUSES):
            status, *words = (line.split(" - ", 1)[0] if line.startswith(FAILED) else line).split()
            if words and not (status == SKIPPED and _SKIPS.match(words[0])):
                found[" ".join(words)] = status
        elif line.endswith(_STATUSES):
            *words, status = line.split()
            if words:
                found[" ".join(words)] = status
    return found


def _seaborn(text: str) -> Statuses:
    found: Statuses = {}
    for line in text.split("\n"):
        words = line.split()
        if len(words) < 2:
            continue
        if line.startswith(FAILED):
            found[words[1]] = FAILED
        elif f" {PASSED} " in line:
            if words[1] == PASSED:
                found[words[0]] = PASSED
        elif line.startswith(PASSED):
            found[words[1]] = PASSED
    return found


def _django(text: str) -> Statuses:
    """unittest's verbose lines, "name ... ok"; what a test prints may stand between the two."""
    found: Statuses = {}
    before = None
    for line in map(str.strip, text.split("\n")):
        if "--version is equivalent to version" in line:  # its name is spread over lines
            found["--version is equivalent to version"] = PASSED
        if " ... " in line:
            before = line.split(" ... ")[0]
        if ending := next((end for end in (" ... ok", " ... OK", " ...  OK") if line.endswith(end)), ""):
            if line.startswith("Applying sites.0002_alter_domain_unique...test_no_migrations"):
                line = line.split("...", 1)[1].strip()
            found[line.rsplit(ending, 1)[0]] = PASSED
        if " ... skipped" in line:
            found[line.split(" ... skipped")[0]] = SKIPPED
        for word, status in (("FAIL", FAILED), ("ERROR", ERROR)):
            if line.endswith(f" ... {word}"):
                found[line.split(f" ... {word}")[0]] = status
            if line.startswith(f"{word}:") and len(line.split()) > 1:
                found[line.split()[1]] = status
        if line.startswith("ok") and before is not None:
            found[before] = PASSED
    for interruption in _DJANGO_INTERRUPTIONS:
        for match in re.finditer(rf"^(.*?)\s\.\.\.\s{interruption}\nok$", text, re.MULTILINE):
            found[match[1]] = PASSED
    return found


def _sympy(text: str) -> Statuses:
    found = {f"{match[1]}.py:{match[2]}": FAILED for match in _SYMPY_FAILURE.finditer(text)}
    endings = {" E": ERROR, " F": FAILED, " ok": PASSED}
    for line in map(str.strip, text.split("\n")):
        if line.startswith("test_"):
            found.update((line.split()[0], status) for end, status in endings.items() if line.endswith(end))
    return found


_PARSERS: dict[str, Callable[[str], Statuses]] = {
    "astropy/astropy": _pytest_whole,
    "scikit-learn/scikit-learn": _pytest_whole,
    "sphinx-doc/sphinx": _pytest_whole,
    "psf/requests": _pytest_with_paths,
    "pydicom/pydicom": _pytest_with_paths,
    "pylint-dev/pylint": _pytest_with_paths,
    "matplotlib/matplotlib": _pytest_matplotlib,
    "mwaskom/seaborn": _seaborn,
    "django/django": _django,
    "sympy/sympy": _sympy,
}
