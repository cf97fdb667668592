"""What this host supports, what is missing, and what to do: found by trying, not by reading version numbers."""

from __future__ import annotations

import functools
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ...base.errors import StartFailed
from ..cgroups import mounted
from . import cgroup_moves, landlock, selftest, volumes
from .refusals import explain, release, spell

OLDEST = (5, 11)  # overlay in a user namespace
_NEEDED = ("user", "mount", "pid", "network", "ipc", "uts", "tmpfs", "overlay", "proc")
_TIMEOUT = 10.0
_START_DOCKER = "start it, such as with: systemctl start docker; or join the group docker"


@dataclass(frozen=True)
class Check:
    """One thing that we use, if it is there."""

    name: str
    ok: bool | None
    """None when it is missing and nothing depends on it."""
    found: str
    fix: str = ""
    """One line that a person can run or do; empty when all is well."""


def checks() -> list[Check]:
    """All of them, needed ones first. Takes some tens of milliseconds, leaves nothing behind."""
    return [
        _kernel(),
        *_isolation(),
        _landlock(),
        _seccomp(),
        _pidfd(),
        *_cgroups(),
        _favoured(),
        _volumes(),
        *_programs(),
    ]


@functools.cache
def missing_isolation() -> str | None:
    """None when instances can be isolated here; else what is missing and how to allow it."""
    if sys.platform != "linux":
        return f"isolation needs Linux, and this is {sys.platform}; use the docker engine"
    tried = dict(_attempted())
    for step in _NEEDED:
        if error := tried.get(step):
            found, fix = explain(step, error)
            return f"no {spell(step)}: {found}; {fix}"
    # An attempt that ended early proves nothing.
    untried = ", ".join(spell(step) for step in _NEEDED if step not in tried)
    return f"could not try {untried}; see: python -m aenv.isolation.sandbox.selftest" if untried else None


@functools.cache
def _attempted() -> tuple[tuple[str, int], ...]:
    """What `attempts` found, in a process of its own: what it enters cannot be left again."""
    return _by_fork() if len(os.listdir("/proc/self/task")) == 1 else _by_program()


def _by_fork() -> tuple[tuple[str, int], ...]:
    """The fast way. Not with threads: a lock that one of them holds would be held in the child for ever."""
    source, sink = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            signal.set_wakeup_fd(-1)  # or signals of the child would wake the parent's loop
            lines = "".join(f"{step} {error}\n" for step, error in selftest.attempted())
            os.write(sink, lines.encode())
        finally:
            os._exit(0)
    os.close(sink)
    try:
        with open(source) as answers:
            return _parsed(answers.read())
    finally:
        os.waitpid(child, 0)


def _by_program() -> tuple[tuple[str, int], ...]:
    # Without site-packages, which cost more than the attempts, and with nothing from the environment.
    sources = str(Path(__file__).resolve().parents[3])
    code = f"import sys; sys.path[:0] = [{sources!r}]; from aenv.isolation.sandbox.selftest import main; main()"
    command = [sys.executable, "-I", "-S", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT)
    if done.returncode:
        raise StartFailed(f"trying isolation with {sys.executable!r} failed: {done.stderr.strip()[-500:]}")
    return _parsed(done.stdout)


def _parsed(text: str) -> tuple[tuple[str, int], ...]:
    return tuple((step, int(error)) for step, error in map(str.split, text.splitlines()))


def _kernel() -> Check:
    is_new = release() >= OLDEST
    fix = f"use Linux {OLDEST[0]}.{OLDEST[1]} or newer; 6.6 has everything"
    return Check("kernel", is_new, f"Linux {os.uname().release}", "" if is_new else fix)


def _isolation() -> Iterator[Check]:
    tried = dict(_attempted())
    for step in (*_NEEDED, "cgroup", "xattr", "idmapped"):
        if error := tried.get(step):
            yield Check(spell(step), False, *explain(step, error))
        elif step in tried:
            yield Check(spell(step), True, "works")
        elif step == "idmapped":
            yield Check(spell(step), None, "not tried: only root needs them")
        else:
            yield Check(spell(step), False, "not tried, since another step failed", "mend that one first")


def _volumes() -> Check:
    found, _, fix = volumes.why_not().partition("; ")
    return Check("size of storage", None if found else True, found or "works", fix)


def _landlock() -> Check:
    if (abi := landlock.abi()) >= landlock.LEAST_ABI:
        return Check("landlock", True, f"ABI {abi}")
    found = f"ABI {abi}, which is too old" if abi else "not in this kernel, or not switched on"
    return Check("landlock", False, found, "use Linux 5.19 or newer, booted with landlock in the list of lsm=")


def _seccomp() -> Check:
    path = Path("/proc/sys/kernel/seccomp/actions_avail")
    actions = path.read_text().split() if path.exists() else []
    if {"errno", "kill_process", "allow"} <= set(actions):
        return Check("seccomp", True, "filters work")
    return Check("seccomp", False, "no filters in this kernel", "use a kernel with CONFIG_SECCOMP_FILTER")


def _pidfd() -> Check:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        return Check("pidfd", False, f"refused: {(error.strerror or '').lower()}", "use Linux 5.3 or newer")
    return Check("pidfd", True, "works")


def _cgroups() -> Iterator[Check]:
    places = mounted.look("aenv")
    for place in places.enforcing:
        for controller in place.controllers:
            yield Check(f"cgroup {controller}", True, f"version {place.version}, {place.base}")
    if places.freezer is not None:
        yield Check("cgroup freezer", True, f"version {places.freezer.version}, {places.freezer.base}")
    for controller, why in places.missing.items():
        found, _, fix = why.partition("; ")
        yield Check(f"cgroup {controller}", False, f"not enforced: {found}", fix)


def _favoured() -> Check:
    if cgroup_moves.is_favoured():
        return Check("favordynmods", True, "moves between cgroups are fast")
    found = "off: a create can wait some milliseconds for its limits"
    return Check("favordynmods", None, found, f"as root: {cgroup_moves.command()}")


def _programs() -> Iterator[Check]:
    yield _subordinate_ids()
    install: Callable[[str], str] = "install it, such as with: apt-get install -y {}".format
    yield _program(("skopeo", "podman"), "pulls images from registries", install("skopeo"))
    yield _program(("runsc",), "the gVisor tier", "install gVisor's runsc into a folder of PATH")
    yield _docker(install("docker.io"))
    beside = Path(sys.executable).parent / "uv"
    known = str(beside) if os.access(beside, os.X_OK) else ""
    yield _program(("uv",), "installs requirements", "pip install uv", is_needed=True, known=known)
    has_redis = importlib.util.find_spec("redis") is not None
    fix = "" if has_redis else "pip install 'redis>=5.2'"
    yield Check("redis", has_redis or None, "client installed" if has_redis else "only for several gateways", fix)


def _program(names: tuple[str, ...], use: str, fix: str, *, is_needed: bool = False, known: str = "") -> Check:
    if path := known or next(filter(None, map(shutil.which, names)), None):
        return Check(names[0], True, path)
    return Check(names[0], False if is_needed else None, f"no {' or '.join(names)}; {use}", fix)


def _docker(install: str) -> Check:
    """The daemon, not the program alone: with its socket closed or no process behind it nothing can be built."""
    use = "builds and saves images"
    if not (path := shutil.which("docker")):
        return Check("docker", None, f"no docker; {use}", install)
    asked = [path, "version", "--format", "{{.Server.Version}}"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=_TIMEOUT)
    except subprocess.TimeoutExpired:
        return Check("docker", None, f"its daemon does not answer within {_TIMEOUT:g} s; {use}", _START_DOCKER)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no reason"])[-1]
        return Check("docker", None, f"its daemon does not answer: {said}; {use}", _START_DOCKER)
    return Check("docker", True, f"daemon {done.stdout.strip()} answers")


def _subordinate_ids() -> Check:
    """Of more than one id inside; an ordinary user alone has none to give."""
    name = "subordinate ids"
    if os.geteuid() == 0:
        return Check(name, True, "not needed as root")
    if shutil.which("newuidmap") is None:
        return Check(name, None, "no newuidmap; inside there is one user only", "apt-get install -y uidmap")
    user = _user()
    ranges = [_ranges(Path(path), user) for path in ("/etc/subuid", "/etc/subgid")]
    if all(ranges):
        return Check(name, True, f"newuidmap, {min(ranges)} ids")
    fix = f"as root: usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {user}"
    return Check(name, None, f"{user} has none in /etc/subuid or /etc/subgid", fix)


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())  # an id without a name, as in some containers


def _ranges(path: Path, user: str) -> int:
    if not path.exists():
        return 0
    lines = (line.split(":") for line in path.read_text().splitlines())
    return sum(int(words[2]) for words in lines if len(words) == 3 and words[0] in (user, str(os.geteuid())))
