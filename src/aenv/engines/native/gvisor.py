"""The gVisor tier: an instance whose system calls meet a kernel of their own, gVisor's, and not the host's.

The instance is an OCI bundle that `runsc` runs, with the same root, binds and limits as others. Its processes are
in a control group of ours; the runtime in it listens on a socket in a folder that it shares with us.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

from ...base.addresses import Origin
from ...base.errors import StartFailed, Unsupported
from ...isolation.cgroups import Cgroups, ControlGroup
from ...isolation.sandbox import protocol
from ...isolation.sandbox.inside_paths import LOG, WORKSPACE
from .. import proc
from ..base import Address, CommandOutput, InstanceSpec, ResourceLimits
from ..commands import Command, Commands
from ..descriptors import readable
from ..folder import InstanceFolder, take_socket
from ..instance_state import InstanceState
from . import oci_config
from .spares import Recipe

NAME = "gvisor"
ISOLATION = ("gVisor (runsc)",)
_MAX_SAID = protocol.MAX_READY_BYTES


class Gvisor:
    """Makes and ends the instances that ask for it. `home` is where runsc keeps what it knows of them."""

    def __init__(self, home: Path, cgroups: Cgroups) -> None:
        self._state = home / "run" / "runsc"
        self._bundles = home / "run" / "bundles"
        self._cgroups = cgroups
        self._commands = Commands()

    async def start(
        self, spec: InstanceSpec, recipe: Recipe, folder: InstanceFolder, variables: Mapping[str, str]
    ) -> Address:
        """Return once the instance serves. Whatever happens, `end` finds all of it by its folder."""
        runsc = self._runsc(spec)
        name, bundle = _name(spec.id), self._bundle(spec.id)
        oci_config.write(spec, recipe, bundle, variables)
        limits = recipe.limits
        group = self._cgroups.make(name, cpus=limits.cpus, memory_bytes=limits.memory_bytes, pids=limits.pids)
        root = recipe.kind.root.name
        folder.write_state(
            InstanceState(
                isolation=NAME,
                group=group.name,
                environment=spec.environment,
                root=root,
                runtime=tuple(oci_config.runtime(spec.python)),
            )
        )
        words = self._words(runsc, *_flags(spec.network.kind, limits))
        words += ["run", f"--bundle={bundle}", "--detach", f"--pid-file={bundle / 'pid'}", name]
        said = await _launched(_start(bundle, words), group)
        if isinstance(said, protocol.NotReady):
            raise StartFailed(f"the instance of {spec.environment!r} failed to load: {said.error}".strip())
        pid = int((bundle / "pid").read_text())
        folder.write_state(InstanceState(pid=pid, start_time=proc.start_time(pid)))
        take_socket(bundle / "shared" / "socket", folder.socket)
        folder.write_state(InstanceState(tools=said.tools))
        return Address(Origin("localhost", socket=str(folder.socket)), pid, said.tools, root, (), ISOLATION)

    def exec(
        self, id: str, command: Sequence[str], *, stdin: bytes = b"", timeout: float | None = None
    ) -> AsyncIterator[CommandOutput]:
        """Run a command in the workspace, with the variables of the instance."""
        Command(command, Path("/"), {}, b"", None)  # says what is wrong with it
        words = self._words(_found(), "exec", f"--cwd={WORKSPACE}", _name(id), *command)
        return self._commands.run(id, Command(words, Path("/"), {}, stdin, timeout), check=lambda: None)

    async def logs(self, folder: InstanceFolder, *, follow: bool) -> AsyncIterator[bytes]:
        """What the instance has printed: it is asked, since the log lies in it."""
        recorded = folder.read_state().runtime or oci_config.runtime(None)  # earlier builds recorded none
        runtime = oci_config.any_version(recorded)
        async for output in self.exec(folder.id, [*runtime, "log", LOG, *(["follow"] if follow else [])]):
            if output.stream == "stdout":
                yield output.data

    async def end(self, id: str) -> None:
        """End the instance, and have runsc forget it. Fine when there is none."""
        if runsc := shutil.which("runsc"):  # else its processes are ended with their group
            for name in (_name(id), id):  # as the version before called it
                words = self._words(runsc, "delete", "--force", name)
                done = await asyncio.create_subprocess_exec(
                    *words, env={}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
                await done.wait()
        await asyncio.to_thread(shutil.rmtree, self._bundle(id), ignore_errors=True)

    def _bundle(self, id: str) -> Path:
        return self._bundles / _name(id)

    def _words(self, runsc: str, *words: str) -> list[str]:
        return [runsc, f"--root={self._state}", *words]

    def _runsc(self, spec: InstanceSpec) -> str:
        """Where it is, and whether it can do what is asked for."""
        runsc = _found()
        if os.geteuid() != 0:
            raise Unsupported("isolation by gVisor needs a gateway that runs as root")
        if spec.network.kind == "egress":
            raise Unsupported("gVisor has no egress to some hosts only; set network to 'none' or 'full'")
        if spec.uses_environments:
            raise Unsupported("an instance in gVisor uses no environments; leave out 'grants' or 'isolation'")
        if spec.model:
            raise Unsupported("an instance in gVisor has no relay to a model; leave out 'model' or 'isolation'")
        if spec.sidecar:
            raise Unsupported("an instance in gVisor has no sidecar; leave out 'datasource' or 'isolation'")
        return runsc


def is_one(folder: InstanceFolder) -> bool:
    """Whether the instance is in gVisor."""
    return folder.read_state().isolation == NAME


def refuse(folder: InstanceFolder, what: str) -> None:
    """Say so when something cannot be done to an instance because it is in gVisor."""
    if is_one(folder):
        raise Unsupported(f"the {what} of an instance in gVisor cannot be reached; run a command in it instead")


def _name(id: str) -> str:
    """What others on this host may see an instance called: its id would open it."""
    return f"instance-{hashlib.blake2b(id.encode(), digest_size=10).hexdigest()}"


def _found() -> str:
    runsc = shutil.which("runsc")
    if runsc is None:
        raise Unsupported("no gVisor here: install its program 'runsc' into a folder of PATH; see 'aenv doctor'")
    return runsc


def _flags(network: str, limits: ResourceLimits) -> list[str]:
    return [
        "--platform=systrap",
        f"--network={'host' if network == 'full' else 'none'}",
        "--host-uds=create",  # it may make a socket in a shared folder, and connect to none
        f"--overlay2=root:memory,size={limits.storage_bytes}",
        "--ignore-cgroups",  # they are ours, and have it already
    ]


def _start(bundle: Path, words: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [
            sys.executable,
            "-P",
            "-m",
            "aenv.isolation.sandbox.overlay_run",
            str(bundle / "overlays.json"),
            "--",
            *words,
        ],
        env={"PATH": os.defpath},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        start_new_session=True,
        cwd="/",
    )


async def _launched(child: subprocess.Popen[bytes], group: ControlGroup) -> protocol.Ready | protocol.NotReady:
    """Let it begin; what the runtime in it says when it is ready, or cannot be. StartFailed with runsc's words."""
    assert child.stdin
    assert child.stdout
    assert child.stderr
    try:
        with child.stdin as gate:
            group.attach(child.pid)
            gate.write(b"+")
        code, line, printed = await _answer(child)
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
        child.stdout.close()
        child.stderr.close()
    with contextlib.suppress(protocol.Broken):
        return await asyncio.to_thread(protocol.ready, line)
    text = printed.decode(errors="replace").strip()
    what = f"runsc could not run it (exit code {code})" if code else "it ended before it was ready"
    raise StartFailed(f"{what}{f': {text}' if text else ' and printed nothing'}")


async def _answer(child: subprocess.Popen[bytes]) -> tuple[int | None, bytes, bytes]:
    """The exit code of runsc, the first line that the instance says, and what went wrong on the way."""
    assert child.stdout
    assert child.stderr
    heard = {child.stdout.fileno(): bytearray(), child.stderr.fileno(): bytearray()}
    line = heard[child.stdout.fileno()]
    open_ones = set(heard)
    while child.stdout.fileno() in open_ones and b"\n" not in line and len(line) < _MAX_SAID:
        for descriptor in await readable(*open_ones):
            piece = os.read(descriptor, 1 << 16)
            heard[descriptor] += piece[: _MAX_SAID - len(heard[descriptor])]
            if not piece:
                open_ones.discard(descriptor)
    await proc.ended(child.pid)  # at once: it leaves the instance to itself
    # What fails to load says so, and is then said to have ended: one read may give both lines.
    return child.wait(), bytes(line).partition(b"\n")[0], bytes(heard[child.stderr.fileno()])
