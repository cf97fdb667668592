"""Whatever happens to instances, in whatever order: the gateway agrees with a plain model of what should be.

Hypothesis chooses the steps: creates, repeats and cancellations, deletions, time, crashes of instances, an engine
that refuses, runs short, gives up or finishes what it should cancel, a store that is down or whose answer is lost,
and gateways that stop or are killed. After each step model, supervisor, engine and store are compared.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from aenv.base.errors import Conflict, NotFound, StartFailed, Unavailable
from aenv.base.models import CreateInstance
from aenv.control.instances.ledger import REMEMBERED
from aenv.control.instances.records import Record
from aenv.control.serving.accounts import LOCAL
from tests.instance_model import IDS, KEYS, MOST, TTL, Asked, Attempt, Model
from tests.instance_world import Incarnation, World, started

pytestmark = pytest.mark.slow  # many orders of events are tried

NAMES = st.sampled_from([*IDS, *KEYS])
LABELS = st.sampled_from(["a"] * 9 + ["b"])
"""Of a request: mostly the same, so that a repeat is one."""
RARELY = st.sampled_from([False] * 5 + [True])
HOWS = st.sampled_from(["ready"] * 5 + ["refuse", "run short", "give up"])
STEP = 400.5  # seconds that pass at a time: no sum of them comes within a second of any deadline


Draw = Callable[[st.SearchStrategy[Any]], Any]


class Machine(RuleBasedStateMachine):
    """The steps. Each lets everything come to rest before the next."""

    has_quota = False

    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        """One of those that are possible now. Drawn here: rules of their own would come as often as each other."""
        steps = self.possible()
        name = data.draw(st.sampled_from([name for name in steps for _ in range(steps[name])]), label="step")
        getattr(self, name)(data.draw)

    def possible(self) -> dict[str, int]:
        """The steps, and how often they are taken."""
        model, is_up = self.model, not self.world.store_is_down
        return {
            "create": 6,
            "cancel": 3 * bool(self.waiting()),
            "lose_the_answer": 2 * bool(self.answered()),
            "delete": 3 * bool(model.live or model.rows),
            "answer": 6 * bool(self.starting()),
            "crash_an_instance": bool(self.alive()),
            "let_time_pass": 3 * bool(model.rows),
            "renew": is_up and bool(self.alive()),
            "break_the_store": is_up,
            "repair_the_store": 3 * (not is_up),
            "tend": is_up and bool(model.rows),
            "stop_the_gateway": bool(model.live or model.running or model.unsaved),
            "kill_the_gateway": bool(model.live or model.running or model.unsaved),
        }

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.exits = contextlib.ExitStack()
        self.folder = Path(self.exits.enter_context(tempfile.TemporaryDirectory()))
        self.world = World()
        self.model = Model(self.world, self.has_quota)
        # The clock on the wall, which records and deadlines go by.
        self.exits.enter_context(mock.patch("time.time", self.world.time))
        # What is chosen at random is not drawn by Hypothesis.
        self.exits.enter_context(mock.patch("aenv.base.wire.new_instance_id", self.world.new_id))
        self.gateway: Incarnation
        self.open: contextlib.AbstractAsyncContextManager[Incarnation]

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    async def _start(self) -> None:
        options = {"max_instances": MOST} if self.has_quota else {}
        self.open = started(self.world, self.folder, **options)
        self.gateway = await self.open.__aenter__()

    @initialize()
    def start(self) -> None:
        self.do(self._start())

    def perform(self, work: Coroutine[Any, Any, Any], expected: type[Exception] | None = None) -> None:
        """Do something to the end, and see whether it fails as it should."""

        async def whole() -> BaseException | None:
            task = asyncio.ensure_future(work)
            await self.gateway.settle()
            assert task.done(), "it waits for something"
            return task.exception()

        error = self.do(whole())
        assert type(error) is (expected or type(None)), (error, expected)
        self.rest()

    def rest(self) -> None:
        """Let everything come to rest. What was to fail in this step has failed, or does not."""
        self.do(self.gateway.settle())
        self.break_something()

    def break_something(
        self, *, cut_off: bool = False, destroy_fails: bool = False, stubborn: bool = False
    ) -> None:
        self.world.cut_off = self.model.cut_off = cut_off
        self.world.destroy_fails = self.model.destroy_fails = destroy_fails
        self.world.stubborn = stubborn

    # Asking for instances

    def create(self, draw: Draw) -> None:
        self.break_something(cut_off=draw(RARELY) and not self.model.unsaved)
        self.ask_for(draw(NAMES), draw(LABELS), draw)

    def ask_for(self, name: str, label: str, draw: Draw) -> None:
        model, made = self.model, self.gateway.made
        self.world.at_once = draw(st.sampled_from([False, False, True]))
        request = CreateInstance(env_name="echo", ttl=f"{TTL:.0f}s", labels={"of": label})
        by = {"key": name} if name in KEYS else {"id": name}
        begun: list[str] = []

        async def ask() -> asyncio.Task[Record]:
            task = asyncio.create_task(made.creator.create(request, LOCAL, **by))
            await asyncio.sleep(0)
            if name in KEYS and (instance := made.supervisor.of_key(None, name)):
                begun.append(instance.record.id)
            return task

        known = model.of(name)
        asked = Asked(self.do(ask()))
        model.asked.append(asked)
        if known is None:
            id = begun[0] if begun else name
            model.create(asked, name, id, label)
        elif known.label != label:
            asked.expected = Conflict
        else:
            asked.attempt = known
            known.waiting += 1
            if known.running:
                model.answer(known, known.id)
        self.rest()
        attempt = asked.attempt
        if attempt and (now := made.supervisor.of_key(None, name)) and now.record.id != attempt.id:
            self.renamed(attempt, now.record.id)
        model.ids |= {attempt.id} if attempt else set()

    def renamed(self, attempt: Attempt, id: str) -> None:
        """The gateway chooses the ids of requests with a key, and another one at each try."""
        model = self.model
        for mapping in (model.live, model.rows):
            if attempt.id in mapping:
                mapping[id] = mapping.pop(attempt.id)  # type: ignore[assignment]
        if attempt.id in model.running:
            model.running = model.running - {attempt.id} | {id}
        model.keys = {key: id if known == attempt.id else known for key, known in model.keys.items()}
        for one in model.asked:
            one.expected = id if one.expected == attempt.id else one.expected
        attempt.id = id

    def waiting(self) -> list[Asked]:
        return [one for one in self.model.asked if one.expected is None]

    def cancel(self, draw: Draw) -> None:
        asked = draw(st.sampled_from(self.waiting()))
        attempt = asked.attempt
        assert attempt
        if attempt.id in IDS and attempt.waiting == 1 and draw(st.booleans()):
            self.cancel_and_repeat(asked, attempt, draw)
            return
        self.break_something(stubborn=draw(st.booleans()), cut_off=draw(RARELY))
        asked.task.cancel()
        asked.expected = asyncio.CancelledError  # type: ignore[assignment]
        attempt.waiting -= 1
        if not attempt.waiting:
            self.model.undo(attempt, runs=self.world.stubborn)
        self.rest()

    def cancel_and_repeat(self, asked: Asked, attempt: Attempt, draw: Draw) -> None:
        """As a client does whose connection broke: the first attempt is still being undone."""
        asked.task.cancel()
        asked.expected = asyncio.CancelledError  # type: ignore[assignment]
        attempt.waiting = 0
        self.model.undo(attempt)
        self.ask_for(attempt.id, attempt.label, draw)

    def answered(self) -> list[Asked]:
        return [one for one in self.model.asked if isinstance(one.expected, str)]

    def lose_the_answer(self, draw: Draw) -> None:
        asked = draw(st.sampled_from(self.answered()))
        self.break_something(cut_off=draw(RARELY), destroy_fails=draw(RARELY))
        attempt = asked.attempt
        assert attempt
        self.model.asked.remove(asked)

        async def lose() -> None:
            self.gateway.made.creator.not_delivered([asked.task.result()])

        self.do(lose())
        attempt.lost += 1
        if attempt.told <= attempt.lost and not attempt.waiting and self.model.live.get(attempt.id) is attempt:
            self.model.undo(attempt)
        self.rest()

    def delete(self, draw: Draw) -> None:
        model = self.model
        id = draw(st.sampled_from(sorted(model.ids)))
        self.break_something(stubborn=draw(st.booleans()), cut_off=draw(RARELY), destroy_fails=draw(RARELY))
        expected: type[Exception] | None = None
        if attempt := model.live.get(id):
            if attempt.running:
                done = model.end(attempt, "Terminated")
            else:
                done = model.undo(attempt, runs=self.world.stubborn)
            expected = None if done else Unavailable
        elif self.world.store_is_down:
            expected = Unavailable
        elif (row := model.rows.get(id)) is None:
            expected = NotFound
        elif row.live:  # its end could not be recorded: it is taken over, and ended again
            if model.written():
                model.destroy(id)
                row.status, row.ended = "Terminated", self.world.now
            else:
                expected = Unavailable
        self.perform(self.gateway.made.instances.delete(id), expected)

    # The engine

    def starting(self) -> list[str]:
        return sorted(id for id, attempt in self.model.live.items() if not attempt.running)

    def answer(self, draw: Draw) -> None:
        id, how = draw(st.sampled_from(self.starting())), draw(HOWS)
        self.break_something(cut_off=draw(RARELY), destroy_fails=draw(RARELY))
        model, attempt = self.model, self.model.live[id]
        self.gateway.engine.starting[id].set_result(how)
        if how == "ready":
            model.run(attempt)
        elif how == "refuse":
            del model.live[id]
            model.answer(attempt, StartFailed)
            model.tell(lambda: model.save_end(attempt, "Failed"))
        else:
            model.undo(attempt, Unavailable if how == "run short" else Conflict)
        self.rest()

    def alive(self) -> list[str]:
        return sorted(id for id, attempt in self.model.live.items() if attempt.running)

    def crash_an_instance(self, draw: Draw) -> None:
        id = draw(st.sampled_from(self.alive()))
        self.break_something(cut_off=draw(RARELY))
        self.world.running[id].set()
        self.model.end(self.model.live[id], "Failed")
        self.rest()

    # Time

    def let_time_pass(self, draw: Draw) -> None:
        self.world.now += STEP
        self.break_something(cut_off=draw(RARELY))

        async def check() -> None:
            for id in filter(self.gateway.made.sweeper.__contains__, [*self.gateway.made.supervisor]):
                self.gateway.made.supervisor.check(id)

        self.do(check())
        for attempt in [one for one in self.model.live.values() if one.running and one.expires < self.world.now]:
            self.model.end(attempt, "Terminated")
        self.rest()

    def renew(self, draw: Draw) -> None:
        id = draw(st.sampled_from(self.alive()))
        self.model.live[id].expires = self.world.now + TTL
        self.perform(self.gateway.made.instances.renew(id, TTL))

    # The store

    def break_the_store(self, _: Draw) -> None:
        self.world.store_is_down = True

    def repair_the_store(self, _: Draw) -> None:
        self.world.store_is_down = False

    def tend(self, _: Draw) -> None:
        model = self.model
        model.save_rest()
        for row in [one for one in model.rows.values() if not one.live]:
            if row.ended + REMEMBERED < self.world.now:
                model.remove(row)
        self.perform(self.gateway.made.upkeep.tend())

    # Gateways

    def stop_the_gateway(self, draw: Draw) -> None:
        keep = draw(st.booleans())
        model = self.model
        for attempt in [*model.live.values()]:
            if not attempt.running:
                model.undo(attempt)
            elif keep:
                del model.live[attempt.id]
            else:
                model.end(attempt, "Terminated")
        self.perform(self.gateway.made.supervisor.close(keep=keep))
        self.check_answers()
        self.world.store_is_down = False
        self.perform(self.gateway.made.upkeep.resign())
        self.begin_again()

    def kill_the_gateway(self, draw: Draw) -> None:
        if draw(st.booleans()):  # the engine has finished what it was making, and the gateway never heard of it
            for id in self.gateway.engine.starting:
                self.world.running[id] = asyncio.Event()
        self.world.store_is_down = False
        self.do(self.gateway.kill())
        self.begin_again()

    def begin_again(self) -> None:
        model = self.model
        self.do(self.open.__aexit__(None, None, None))
        model.live, model.unsaved, model.asked = {}, [], []
        for row in [one for one in model.rows.values() if one.live]:
            attempt = row.attempt
            attempt.told, attempt.lost, attempt.waiting = 1, 0, 0
            if attempt.id in model.running and row.status == "Running":
                model.live[attempt.id] = attempt
                attempt.running = True
                continue
            row.begins_again = row.status == "Creating"
            is_over = row.status == "Running" and attempt.expires < self.world.now
            row.status, row.ended = "Terminated" if is_over else "Failed", self.world.now
        model.running = set(model.live)
        self.do(self._start())
        self.do(self.gateway.settle())

    # What must hold

    def check_answers(self) -> None:
        for one in self.model.asked:
            assert one.task.done() is (one.expected is not None), one
            if not one.task.done():
                continue
            if one.task.cancelled():
                assert one.expected is asyncio.CancelledError
            elif error := one.task.exception():
                assert type(error) is one.expected, (error, one)
            else:
                assert one.task.result().id == one.expected
        self.model.asked = [
            one for one in self.model.asked if one.expected is None or isinstance(one.expected, str)
        ]

    @invariant()
    def every_request_has_its_answer(self) -> None:
        self.check_answers()

    @invariant()
    def the_gateway_knows_what_lives(self) -> None:
        supervisor = self.gateway.made.supervisor
        states = {id: instance.state.value for id, instance in supervisor.items()}
        assert states == {id: "running" if one.running else "creating" for id, one in self.model.live.items()}

    @invariant()
    def the_engine_runs_nothing_else(self) -> None:
        assert set(self.world.running) == self.model.running
        assert set(self.gateway.engine.starting) == {id for id, one in self.model.live.items() if not one.running}

    @invariant()
    def the_store_says_so_too(self) -> None:
        if not self.world.store_is_down:
            self.do(self._check_store())

    async def _check_store(self) -> None:
        model, made = self.model, self.gateway.made
        ids = sorted(model.ids)
        found = {one.key: one.value["status"] for one in await made.shared.store.get("instances", *ids) if one}
        assert found == {id: row.status for id, row in model.rows.items()}
        assert await made.shared.store.totals("instances") == [sum(row.live for row in model.rows.values())]
        assert {key: await made.instances._ledger.find_key(None, key) for key in KEYS} == {
            key: model.keys.get(key) for key in KEYS
        }
        for id in ids:
            if id in model.live:
                expected = "Running" if model.live[id].running else "Creating"
                assert (await made.instances.get(id)).status == expected

    def teardown(self) -> None:
        if hasattr(self, "gateway"):
            self.world.store_is_down = False
            self.do(self.gateway.kill())
            self.do(self.open.__aexit__(None, None, None))
        self.runner.close()
        self.exits.close()


class MachineWithQuota(Machine):
    """Records are written when there is room, before the engine is asked."""

    has_quota = True


EVERYDAY = settings(
    max_examples=30,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],  # with Phase.shrink a failure is told in fewer steps, and minutes later
    suppress_health_check=[HealthCheck.too_slow],
)


@pytest.mark.parametrize("machine", [Machine, MachineWithQuota])
def test_whatever_happens_to_instances_the_gateway_agrees_with_the_model(machine: type[Machine]) -> None:
    run_state_machine_as_test(machine, settings=EVERYDAY)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("machine", [Machine, MachineWithQuota])
def test_steps_that_were_never_taken_find_nothing(machine: type[Machine]) -> None:
    run_state_machine_as_test(machine, settings=settings(EVERYDAY, max_examples=2000, derandomize=False))
