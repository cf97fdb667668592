"""Commands beside an environment's own code."""

from __future__ import annotations

import asyncio
import os

import pytest

from aenv.base.errors import InvalidRequest, NotFound
from aenv.base.http1 import Pool
from aenv.engines.base import Address, Engine, Exec, InstanceSpec

from .able import Able, result
from .engine import Leftovers, call


class ExecConformance(Able):
    """What every engine with `Exec` must do."""

    async def test_a_command_prints_and_ends_with_its_code(
        self, exec: Exec, spec: InstanceSpec, instance: Address
    ) -> None:
        script = "echo out; echo err >&2; echo more; exit 3"
        assert await result(exec.exec(spec.id, ["sh", "-c", script])) == (3, b"out\nmore\n", b"err\n")

    async def test_a_command_runs_in_the_workspace_with_the_instances_variables(
        self, exec: Exec, spec: InstanceSpec, instance: Address, pool: Pool
    ) -> None:
        await call(pool, instance, "write", path="inside", text="the workspace")
        script = 'cat inside; echo ", $COLOUR, $AENV_INSTANCE_ID"'
        code, out, _ = await result(exec.exec(spec.id, ["sh", "-c", script]))
        assert (code, out.decode()) == (0, f"the workspace, blue, {spec.id}\n")

    async def test_a_command_reads_its_input_to_the_end(
        self, exec: Exec, spec: InstanceSpec, instance: Address
    ) -> None:
        data = os.urandom(3_000_000)
        assert await result(exec.exec(spec.id, ["cat"], stdin=data)) == (0, data, b"")
        assert await result(exec.exec(spec.id, ["cat"])) == (0, b"", b"")

    @pytest.mark.parametrize(
        ("script", "printed"),
        [
            ("echo $#-$0; env | grep -c '^AENV_COMMAND='", "0-/bin/sh\n0\n"),
            ('#!/bin/sh\n# a comment\ncat <<END\n"quoted" $((1 + 1))\nEND', '"quoted" 2\n'),
            ("f() { return 4; }; f || echo failed; set -e; false; echo not reached", "failed\n"),
        ],
    )
    async def test_the_text_of_a_shell_command_runs_as_it_was_written(
        self, exec: Exec, spec: InstanceSpec, instance: Address, script: str, printed: str
    ) -> None:
        _, out, err = await result(exec.exec(spec.id, ["/bin/sh", "-c", script]))
        assert (out.decode(), err) == (printed, b"")

    async def test_arguments_of_a_command_are_nothing_but_arguments(
        self, exec: Exec, spec: InstanceSpec, instance: Address
    ) -> None:
        code, out, _ = await result(exec.exec(spec.id, ["printf", "%s|", "two words", "$HOME", "; exit 1", "ü"]))
        assert (code, out.decode()) == (0, "two words|$HOME|; exit 1|ü|")

    async def test_a_command_that_is_not_there_ends_with_127(
        self, exec: Exec, spec: InstanceSpec, instance: Address
    ) -> None:
        assert await result(exec.exec(spec.id, ["no-such-command"])) == (127, b"", b"no-such-command: not found\n")

    async def test_a_command_that_cannot_be_is_refused(
        self, exec: Exec, spec: InstanceSpec, instance: Address
    ) -> None:
        for command in ([], [""], ["echo", "a\0b"], ["echo", "\ud800"]):
            with pytest.raises(InvalidRequest):
                await result(exec.exec(spec.id, command))

    async def test_a_command_that_is_killed_ends_with_128_and_the_signal(
        self, exec: Exec, spec: InstanceSpec, instance: Address
    ) -> None:
        assert await result(exec.exec(spec.id, ["sh", "-c", "kill -9 $$"])) == (137, b"", b"")

    async def test_a_command_that_takes_too_long_ends_with_124_and_so_do_its_children(
        self, exec: Exec, spec: InstanceSpec, instance: Address
    ) -> None:
        script = "(trap '' TERM; exec sleep 3600) & echo $! $$; wait"
        code, out, _ = await result(exec.exec(spec.id, ["sh", "-c", script], timeout=2))
        assert code == 124
        await self._gone(exec, spec.id, out.split())

    async def test_what_a_command_prints_before_its_time_is_over_arrives(
        self, exec: Exec, spec: InstanceSpec, instance: Address
    ) -> None:
        command = ["sh", "-c", "trap 'echo asked to end; exit 0' TERM; echo begun; while :; do sleep 0.01; done"]
        code, out, _ = await result(exec.exec(spec.id, command, timeout=2))
        assert (code, out) == (124, b"begun\nasked to end\n")

    async def test_leaving_early_ends_the_command_and_its_children(
        self, exec: Exec, spec: InstanceSpec, instance: Address
    ) -> None:
        command = exec.exec(spec.id, ["sh", "-c", "sleep 3600 & echo $! $$; wait"])
        first = await anext(command)
        await command.aclose()  # type: ignore[attr-defined]
        await self._gone(exec, spec.id, first.data.split())

    async def test_cancelling_ends_the_command_and_its_children(
        self, exec: Exec, spec: InstanceSpec, instance: Address
    ) -> None:
        pids: asyncio.Future[list[bytes]] = asyncio.get_running_loop().create_future()

        async def run() -> None:
            async for output in exec.exec(spec.id, ["sh", "-c", "sleep 3600 & echo $! $$; wait"]):
                pids.set_result(output.data.split())

        running = asyncio.create_task(run())
        await pids
        running.cancel()
        await asyncio.sleep(0)  # one turn, in which the command's end begins
        running.cancel()
        await asyncio.wait({running})
        assert running.cancelled()
        await self._gone(exec, spec.id, await pids)

    async def test_a_command_waits_for_a_slow_reader(
        self, exec: Exec, spec: InstanceSpec, instance: Address
    ) -> None:
        size = 50_000_000
        command = exec.exec(spec.id, ["sh", "-c", f"head -c {size} /dev/zero; touch printed"])
        read = len((await anext(command)).data)
        for _ in range(5):  # time in which it could print all of it
            assert await result(exec.exec(spec.id, ["test", "-e", "printed"])) == (1, b"", b"")
        async for output in command:
            read += len(output.data)
        assert read == size
        assert await result(exec.exec(spec.id, ["test", "-e", "printed"])) == (0, b"", b"")

    async def test_what_a_command_leaves_running_does_not_keep_it(
        self, exec: Exec, spec: InstanceSpec, instance: Address, engine: Engine, leftovers: Leftovers
    ) -> None:
        code, out, _ = await result(exec.exec(spec.id, ["sh", "-c", "sleep 3600 & echo $!"]))
        assert code == 0
        assert await result(exec.exec(spec.id, ["kill", "-0", out.decode().strip()])) == (0, b"", b"")
        await engine.destroy(spec.id)
        assert leftovers() == []

    async def test_destroying_the_instance_ends_its_commands(
        self, exec: Exec, spec: InstanceSpec, instance: Address, engine: Engine, leftovers: Leftovers
    ) -> None:
        command = exec.exec(spec.id, ["sh", "-c", "trap '' TERM; echo ready; sleep 3600"])
        await anext(command)
        ending = asyncio.create_task(result(command))
        await engine.destroy(spec.id)
        assert leftovers() == []
        assert (await ending)[0] == 137
        with pytest.raises(NotFound):
            await result(exec.exec(spec.id, ["true"]))

    async def _gone(self, exec: Exec, id: str, pids: list[bytes]) -> None:
        assert len(pids) == 2
        for pid in pids:
            script = 'grep -qs "^State:[[:space:]]*[RSDTtI]" /proc/$0/status'
            code, _, _ = await result(exec.exec(id, ["sh", "-c", script, pid.decode()]))
            assert code != 0, f"process {pid.decode()} still runs"
