"""An instance is ended once, however many ask for it."""

from __future__ import annotations

import asyncio

import pytest

from aenv.engines.endings import Endings


class TestEndings:
    async def test_all_who_ask_while_it_ends_wait_for_the_same_end(self) -> None:
        endings, begun, go_on = Endings(), 0, asyncio.Event()

        async def clear() -> None:
            nonlocal begun
            begun += 1
            await go_on.wait()

        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(endings.end("a", clear)) for _ in range(3)]
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert "a" in endings
            assert not any(task.done() for task in asked)
            go_on.set()
        assert begun == 1
        assert "a" not in endings

    async def test_who_is_cancelled_does_not_stop_the_end(self) -> None:
        endings, go_on, over = Endings(), asyncio.Event(), asyncio.Event()

        async def clear() -> None:
            await go_on.wait()
            over.set()

        asking = asyncio.create_task(endings.end("a", clear))
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        go_on.set()
        await over.wait()

    async def test_a_failed_end_is_told_to_all_and_can_be_asked_for_again(self) -> None:
        endings = Endings()

        async def fail() -> None:
            raise OSError("busy")

        told = await asyncio.gather(*(endings.end("a", fail) for _ in range(2)), return_exceptions=True)
        assert [str(error) for error in told] == ["busy", "busy"]
        assert "a" not in endings
        with pytest.raises(OSError, match="busy"):
            await endings.end("a", fail)
