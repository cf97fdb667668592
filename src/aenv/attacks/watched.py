"""Attacks that show outside of the instance that makes them: each is made, and then the rest is looked at.

An attack that got through raises `BrokenWall`. Not here: those through the gateway's own
doors (`watched_gateway.py`).
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, closing, suppress
from pathlib import Path
from urllib.parse import quote

from ..base.errors import AEnvError
from ..base.http1 import Response
from ..client.instance_replies import Instance
from ..isolation.sandbox import landlock
from .stage import INSIDE, TIMEOUT, Attacked, AttackStage

MEBIBYTE = 1 << 20
LOAD = "import sys; sys.path.insert(0, '/environment/programs'); "


class BrokenWall(Exception):
    """The attack got through; the text says to what."""


class Unclear(Exception):
    """What should succeed beside the attack did not, so that nothing is proven."""


class NotEnforced(Exception):
    """This host cannot contain it; the text says why."""


Watch = Callable[[AttackStage], Awaitable[str]]
WATCHED: dict[str, Watch] = {}


def watched(watch: Watch) -> Watch:
    """Add it to the list, by its name."""
    WATCHED[watch.__name__] = watch
    return watch


def demand(holds: object, otherwise: str) -> None:
    """Broken unless it holds."""
    if not holds:
        raise BrokenWall(otherwise)


def expect(holds: object, otherwise: str) -> None:
    """Unclear unless it holds."""
    if not holds:
        raise Unclear(otherwise)


# Files


@watched
async def links_in_the_workspace(stage: AttackStage) -> str:
    secret = Path(stage.given["secret"])
    async with stage.instance() as attacker:
        await attacker.evaluate(
            f"""
            import os
            os.symlink({str(secret)!r}, "/workspace/file")
            os.symlink({str(secret.parent)!r}, "/workspace/folder")
            os.symlink("/", "/workspace/root")
            """
        )
        before = sorted(os.listdir(secret.parent))
        for method, path in (
            *(("GET", path) for path in ("file", "folder/secret", f"root{secret}")),
            *(("PUT", path) for path in ("folder/written", f"root{secret.parent}/written")),
            ("DELETE", "folder/secret"),
        ):
            said = await _asked(attacker, method, f"/files/{quote(path)}")
            demand(said is None, f"{method} of {path!r} followed a link")
        for path in ("folder", "root"):
            said = await _asked(attacker, "GET", f"/files?path={path}")
            demand(said is None, f"the listing of {path!r} followed a link")
    demand(sorted(os.listdir(secret.parent)) == before, "files of the host have changed")
    kept = await asyncio.to_thread(secret.read_text)
    demand(kept == stage.given["token"], "a file of the host has changed")
    return "no link was followed"


_LOGS = (
    "os.unlink(log); os.symlink(secret, log)",
    "os.unlink(log); os.mkfifo(log)",
    "os.unlink(log); os.mkdir(log)",
    "shutil.rmtree('/var/log'); os.symlink(os.path.dirname(secret), '/var/log')",
    "os.truncate(log, 1 << 24)",
)


@watched
async def log_tricks(stage: AttackStage) -> str:
    for trick in _LOGS:
        async with stage.instance() as attacker:
            names = f"log = '/var/log/instance.log'; secret = {stage.given['secret']!r}"
            await attacker.evaluate(f"import os, shutil; {names}; {trick}")
            said = await _asked(attacker, "GET", "/logs") or b""
            demand(stage.given["token"].encode() not in said, f"the log shows a file of the host: {trick}")
            demand(await attacker.evaluate("said = 1") == 1, "the instance is gone")
    return "no other file was read, and none was waited for"


_VARIABLES = (
    "os.unlink(file); os.symlink(secret, file)",
    "os.unlink(file); os.mkfifo(file); kept.append(os.open(file, os.O_RDWR))",
    "os.unlink(file); os.mkdir(file)",
    "open(file, 'w').write('[' * 100_000)",
    "os.truncate(file, 1 << 40)",
)


@watched
async def variables_tricks(stage: AttackStage) -> str:
    for trick in _VARIABLES:
        async with stage.instance() as attacker:
            names = f"file = '/run/variables.json'; secret = {stage.given['secret']!r}"
            with suppress(AEnvError):  # a root without that file, or one that cannot be changed
                await attacker.evaluate(f"import os; {names}; {trick}")
            done = await attacker.remote.exec(["sh", "-c", "echo works; env"], timeout=TIMEOUT)
            demand(done.stdout.startswith("works\n"), f"commands do not run any more: {trick}")
            demand(stage.given["token"] not in done.stdout, f"a command was given a file of the host: {trick}")
    return "commands run, and get nothing of the host"


# Processes


@watched
async def kill_everything(stage: AttackStage) -> str:
    async with stage.instance() as attacker, stage.instance() as neighbour:
        await attacker.remote.exec(["python3", "-c", "import os; os.kill(-1, 9)"], timeout=TIMEOUT)
        await attacker.evaluate("import os\ntry: os.kill(-1, 9)\nexcept ProcessLookupError: pass")
        demand(stage.given["victim"] in processes(stage.given["victim_name"]), "a process of the host was ended")
        demand(await neighbour.evaluate("said = 1") == 1, "another instance was ended")
    return "it reached its own processes alone"


@watched
async def kill_own_runtime(stage: AttackStage) -> str:
    async with stage.instance() as attacker, stage.instance() as neighbour:
        with suppress(AEnvError):
            await attacker.evaluate("import os; os._exit(7)")
        record = await attacker.ended()
        demand(record.status != "Running", "the instance is said to run")
        demand(await neighbour.evaluate("said = 1") == 1, "another instance was ended")
    return f"it ended: {record.reason or record.status}"


_DEAF = """
import os, signal, subprocess, sys
program = (
    "import os, signal; signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\\n"
    "print(1, flush=True); {}\\nwhile True: pass"
)
for act in ("", "os.kill(os.getpid(), signal.SIGSTOP)"):
    command = ["python3", "-c", program.format(act), "MARK"]
    kept.append(subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE))
    kept[-1].stdout.readline()
said = 1
"""


@watched
async def stop_itself(stage: AttackStage) -> str:
    mark = f"deaf-{stage.given['token'][-8:]}"
    async with stage.instance() as attacker:
        await attacker.evaluate(_DEAF.replace("MARK", mark))
        expect(len([*processes(mark)]) >= 2, "its processes were not to be found outside")
    left = [*processes(mark)]
    demand(not left, f"processes are left: {left}")
    return "its processes were ended from outside"


_CRASH = "import ctypes, resource; resource.setrlimit(resource.RLIMIT_CORE, ({0}, {0})); ctypes.string_at(0)"


@watched
async def dump_core(stage: AttackStage) -> str:
    async with stage.instance() as attacker:
        done = await attacker.remote.exec(["python3", "-c", _CRASH.format("resource.RLIM_INFINITY")])
        demand("Error" in done.stderr, "the limit of cores can be lifted")
        await attacker.remote.exec(["python3", "-c", _CRASH.format(0)])
        demand(await attacker.remote.list_files() == [], "a core was written")
    return "a crash wrote no core"


# Network and descriptors


@watched
async def abstract_socket_with_full_network(stage: AttackStage) -> str:
    if landlock.abi() < 6:
        raise NotEnforced("landlock of this kernel knows no sockets; it takes Linux 6.12")
    async with stage.instance("attacked-open") as attacker:
        given = {**stage.given, **INSIDE}
        for how in ("tool", "command"):
            found = await attacker.attack("network", ["reach_host_loopback", "reach_abstract_socket"], given, how)
            expect(found["reach_host_loopback"]["succeeded"], "the network is not the host's")
            demand(found["reach_abstract_socket"]["succeeded"] is False, f"reached as a {how}")
    return "the host's port was reached, its abstract socket was not"


@watched
async def leaked_descriptors(stage: AttackStage) -> str:
    allowed = {"/dev/null", "/var/log/instance.log", "anon_inode:[eventpoll]", "anon_inode:[eventfd]", "pipe"}
    allowed |= {"AF_UNIX own", "AF_UNIX listening", "AF_UNIX connection", "gone"}
    code = f"{LOAD}import descriptors; said = descriptors.listing()"
    async with stage.instance() as attacker:
        found = await attacker.evaluate(code)
        demand(set(found.values()) <= allowed, f"a tool finds open: {sorted({*found.values()} - allowed)}")
        many = [text for text in found.values() if text in ("AF_UNIX listening", "AF_UNIX connection")]
        demand(len(many) <= 3, f"a tool finds more sockets than its own: {many}")
        done = await attacker.remote.exec(["python3", "-c", f"{code}; print(*(n for n in said if int(n) > 2))"])
        listed = len(done.stdout.split())  # the folder that was being listed
        demand(done.exit_code == 0 and listed <= 1, f"a command finds open: {done.stdout.strip()}")
    return "nothing but what is meant was open"


# Resources


@watched
async def log_fill(stage: AttackStage) -> str:
    most = 32
    async with stage.instance(resources={"ephemeralStorage": f"{most}Mi"}) as attacker:
        written = await attacker.evaluate(
            f"""
            import os
            said = 0
            try:
                while said < {4 * most}:
                    said += os.write(1, b"x" * {MEBIBYTE}) / {MEBIBYTE}
            except OSError:
                pass
            """
        )
        demand(written <= most, f"{written:g} MiB were printed; {most} are allowed")
        demand(await attacker.evaluate("said = 1") == 1, "the instance is gone")
    return f"{written:g} MiB, then its own disk was full"


@watched
async def cpu_spin(stage: AttackStage) -> str:
    half = {"cpu": "0.5"}
    async with stage.instance(resources=half) as spinning, stage.instance(resources=half) as working:
        if reason := not_enforced(await spinning.record(), "cpu"):
            raise NotEnforced(reason)
        await spinning.evaluate(f"{LOAD}import resources; resources.spin(8)")
        before = [await _cpu_seconds(stage, one) for one in (spinning, working)]
        await working.evaluate(f"{LOAD}import resources; resources.burn(0.5)")
        after = [await _cpu_seconds(stage, one) for one in (spinning, working)]
    theirs, own = (late - early for early, late in zip(before, after, strict=True))
    demand(own >= 0.5 and theirs <= 2 * own, f"it took {theirs:.2f} s of cpu, its neighbour got {own:.2f} s")
    return f"it took {theirs:.2f} s of cpu, its neighbour {own:.2f} s"


@watched
async def take_all_watches(stage: AttackStage) -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    async with stage.instance() as attacker, stage.instance() as neighbour:
        code = f"{LOAD}import resources; kept.extend(resources.hold_watches(5000)); said = len(kept)"
        taken = await attacker.evaluate(code)
        own = libc.inotify_init()
        demand(own >= 0, f"none is left for this user after {taken}")
        os.close(own)
        await neighbour.evaluate("print('hello', flush=True)")
        async with asyncio.timeout(TIMEOUT), aclosing(neighbour.remote.logs(follow=True)) as lines:
            async for line in lines:  # which needs a watch of the gateway's
                if "hello" in line:
                    break
    return f"it got {taken}, and others were left"


@watched
async def descriptors_in_flight(stage: AttackStage) -> str:
    async with stage.instance() as attacker:
        code = f"{LOAD}import resources; kept.extend(resources.hold_descriptors_in_flight(20000)); said = 1"
        await attacker.evaluate(code)
        async with stage.instance() as other:
            demand(await other.evaluate("said = 1") == 1, "no new instance could be made")
    return "new instances could be made"


# The gateway


_ASK = """
import http.client, json
connection = http.client.HTTPConnection({host!r}, {port}, timeout=10)
connection.request("POST", {target!r}, json.dumps({{"code": "said = 'reached'"}}), {headers!r})
reply = connection.getresponse()
said = [reply.status, reply.read().decode(errors="replace")]
"""


@watched
async def use_token_for_another(stage: AttackStage) -> str:
    async with stage.instance("attacked-open") as attacker, stage.instance() as other:
        origin, own, token = await stage.data_path(attacker.id)
        _, base, theirs = await stage.data_path(other.id)
        mine = {"authorization": f"Bearer {token}", "content-type": "application/json"}

        async def reached(target: str, headers: dict[str, str]) -> bool:
            code = _ASK.format(host=origin.host, port=origin.port, target=target, headers=headers)
            status, text = await attacker.evaluate(code)
            return bool(status == 200 and "reached" in text)

        for target, headers in (
            (f"{base}/tools/evaluate", mine),
            ("/tools/evaluate", {**mine, "AEnvCore-EnvInstance-ID": other.id}),
            (f"{own}/../{other.id}/tools/evaluate", mine),
            (f"{own}/tools/../../{other.id}/tools/evaluate", mine),
        ):
            demand(not await reached(target, headers), f"POST {target} reached the other instance")
        right = {**mine, "authorization": f"Bearer {theirs}"}
        expect(await reached(f"{base}/tools/evaluate", right), "the right token does not open it either")
    return "its own token opened itself alone"


_ENDLESS = ("body without end", "chunks without end", "events without end")
_REFUSED = ("head without end", "headers without end", "interim answers without end", "chunk that is too large")
_MOST_GROWTH = 96 * MEBIBYTE


@watched
async def endless_response(stage: AttackStage) -> str:
    grown = 0
    async with stage.instance() as neighbour:
        for how in (*_ENDLESS, *_REFUSED):
            before = _gateway_memory(stage)
            async with (
                stage.instance("hostile", arguments=[how]) as attacker,
                _answer(stage, attacker.id) as response,
            ):
                passed_on = how in _REFUSED[:3] and response.status != 502
                demand(not passed_on, f"{how}: the gateway passed it on with {response.status}")
                await _read(response, 8 * MEBIBYTE)
                demand(await neighbour.evaluate("said = 1") == 1, f"{how}: others are held up")
            grown = max(grown, _gateway_memory(stage) - before)
            demand(grown < _MOST_GROWTH, f"{how}: the gateway grew by {grown >> 20} MiB")
    return f"passed on as it was read, or refused; the gateway grew by {grown >> 20} MiB at most"


@watched
async def slow_response(stage: AttackStage) -> str:
    async with stage.instance() as neighbour, stage.instance("hostile", arguments=["nothing"]) as attacker:
        origin, base, token = await stage.data_path(attacker.id)
        async with AsyncExitStack() as stack:
            for _ in range(50):
                _, writer = await asyncio.open_connection(origin.host, origin.port)
                stack.callback(writer.close)
                head = f"GET {base}/x HTTP/1.1\r\nhost: {origin.host}:{origin.port}\r\n"
                writer.write(f"{head}authorization: Bearer {token}\r\n\r\n".encode())
                await writer.drain()
            for number in range(10):
                demand(await neighbour.evaluate(f"said = {number}") == number, "others are held up")
    return "50 requests without an answer held up no other"


# What they share


def not_enforced(record: Instance, limit: str) -> str:
    """Why this limit ("cpu", "memory", "pids") of the instance is not enforced; nothing when it is."""
    told = dict(text.split(": ", 1) for text in record.not_enforced if ": " in text)
    return str(told.get(limit, ""))


async def _asked(attacker: Attacked, method: str, target: str) -> bytes | None:
    """What the gateway said; None when it refused."""
    body = b"written" if method == "PUT" else b""
    async with asyncio.timeout(TIMEOUT):
        try:
            response = await attacker.remote.api.raw(
                method, f"/env-instance/{attacker.id}{target}", body=body, timeout=TIMEOUT
            )
            return await response.read()
        except AEnvError:
            return None


async def _cpu_seconds(stage: AttackStage, one: Attacked) -> float:
    rows = (await stage.api.call("GET", "/env-instances/usage"))["instances"]
    return next(float(row["cpu_seconds"] or 0) for row in rows if row["id"] == one.id)


@asynccontextmanager
async def _answer(stage: AttackStage, id: str) -> AsyncIterator[Response]:
    origin, base, token = await stage.data_path(id)
    headers = [("authorization", f"Bearer {token}")]
    async with asyncio.timeout(TIMEOUT):
        response = await stage.api.pool().request(origin, "GET", f"{base}/x", headers)
    with closing(response):
        yield response


async def _read(response: Response, most: int) -> None:
    """So much of the body, or all of it when it ends or breaks off before."""
    read = 0
    with suppress(AEnvError):
        async with asyncio.timeout(TIMEOUT):
            async for piece in response:
                if (read := read + len(piece)) >= most:
                    return


def gateway_process(stage: AttackStage) -> int:
    """The number of the gateway's process: of those that know its home, the one that was there first."""
    number = next(processes(str(stage.folder / "home")), 0)
    demand(number, "the gateway is gone")
    return number


def _gateway_memory(stage: AttackStage) -> int:
    """Bytes that the gateway's process has in memory."""
    number = gateway_process(stage)
    with open(f"/proc/{number}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def processes(text: str) -> Iterator[int]:
    """The processes with this text among their arguments."""
    for name in sorted(filter(str.isdigit, os.listdir("/proc")), key=int):
        with suppress(OSError), open(f"/proc/{name}/cmdline", "rb") as file:
            if text.encode() in file.read():
                yield int(name)
