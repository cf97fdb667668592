"""The states of an instance: which moves there are, who makes them, and what they cost the store."""

from __future__ import annotations

import asyncio
import itertools
import re
from pathlib import Path
from typing import Any

import pytest

from aenv.base.addresses import Origin
from aenv.base.models import CreateInstance
from aenv.base.wire import EnvStatus
from aenv.control.instances import transitions
from aenv.control.instances.ledger import Ledger, Quotas
from aenv.control.instances.records import Record
from aenv.control.instances.states import MOVES, IllegalMove, State
from aenv.control.instances.supervised import Supervised
from aenv.control.instances.transitions import Transitions
from aenv.control.serving.accounts import LOCAL
from aenv.engines.base import Address, Engine, InstanceSpec
from tests.gateways import composed, make_project
from tests.instance_world import StubEngine, World

ASKED = CreateInstance(env_name="echo")
CROWD = 100
WAYS = {
    State.CREATING: (),
    State.RUNNING: (State.RUNNING,),
    State.ENDING: (State.ENDING,),
    State.UNDOING: (State.UNDOING,),
    State.ENDED: (State.ENDING, State.ENDED),
    State.RELEASED: (State.RUNNING, State.RELEASED),
}


def instance(state: State = State.CREATING) -> Supervised:
    """One that has come to this state by moves of the table."""
    made = Supervised(Record(id="a", node="n", gateway="g", fingerprint=""))
    for step in WAYS[state]:
        made.move(step)
    return made


@pytest.mark.parametrize(("before", "after"), [*itertools.product(State, State)])
def test_a_move_is_made_if_the_table_has_it_and_refused_otherwise(before: State, after: State) -> None:
    moved = instance(before)
    if after in MOVES[before]:
        moved.move(after)
        assert moved.state is after
    else:
        with pytest.raises(IllegalMove, match=f"cannot go from {before.value} to {after.value}"):
            moved.move(after)
        assert moved.state is before


def test_every_state_can_be_reached_and_every_life_can_end() -> None:
    def reached(start: State) -> set[State]:
        found, new = {start}, {start}
        while new := {after for before in new for after in MOVES[before]} - found:
            found |= new
        return found

    assert reached(State.CREATING) == set(State)
    assert all(reached(state) & {State.ENDED, State.RELEASED} for state in State)


@pytest.mark.parametrize("state", [State.ENDING, State.UNDOING, State.ENDED, State.RELEASED])
async def test_what_ends_neither_runs_again_nor_changes_its_record(state: State) -> None:
    class NoStore:
        async def write(self, *_: Any, **__: Any) -> None:
            pytest.fail("it was written")

    moves, ending = Transitions(Ledger(NoStore(), Quotas())), instance(state)  # type: ignore[arg-type]
    before = ending.record.dump()
    with pytest.raises(IllegalMove):
        await moves.run(ending, Address(Origin("localhost"), 1), ())
    with pytest.raises(IllegalMove):
        moves.end(ending, EnvStatus.TERMINATED, "again")
    with pytest.raises(IllegalMove):
        moves.undo(ending, EnvStatus.TERMINATED, "again")
    with pytest.raises(IllegalMove):
        moves.release(ending)
    assert ending.record.dump() == before


def test_only_transitions_changes_a_state_or_a_status() -> None:
    changing = re.compile(r"\.(move|become)\(|\._state = |\.status = EnvStatus|\.stored = ")
    own = Path(transitions.__file__)
    allowed = {own.name, "supervised.py", "records.py", "states.py"}  # which define what it calls
    for file in sorted(own.parent.glob("*.py")):
        if file.name not in allowed:
            assert not changing.search(file.read_text()), file.name
    assert len(re.findall(changing, own.read_text())) > 5


class SoonEngine(StubEngine):
    """Says in which time its instances run; they do in a tenth of a second."""

    def __init__(self, soon: float) -> None:
        super().__init__(World(at_once=True))
        self.soon = soon

    async def create(self, spec: InstanceSpec) -> Address:
        await asyncio.sleep(0.1)
        return await super().create(spec)


@pytest.mark.parametrize(
    ("engine", "quota", "expected"),
    [
        ("process", {}, ["Creating", "Running", "Terminated"]),
        ("process", {"max_instances": 5}, ["Creating", "Running", "Terminated"]),
        ("spares", {}, ["Running", "Terminated"]),
        ("spares", {"max_instances": 5}, ["Creating", "Running", "Terminated"]),
        ("soon", {}, ["Running", "Terminated"]),
        ("not so soon", {}, ["Creating", "Running", "Terminated"]),
    ],
)
async def test_a_create_a_get_and_a_delete_cost_three_writes_and_two_where_the_engine_has_a_spare(
    tmp_path: Path, engine: str, quota: dict[str, int], expected: list[str]
) -> None:
    stubs: dict[str, Engine] = {
        "spares": StubEngine(World(at_once=True)),
        "soon": SoonEngine(60.0),
        "not so soon": SoonEngine(0.01),
    }
    stub = stubs.get(engine)
    async with composed(tmp_path / "home", make_project(tmp_path), engine=stub, **quota) as made:
        await made.instances.delete((await made.creator.create(ASKED, LOCAL)).id)  # the environment is prepared
        written: list[str] = []
        write = made.shared.store.write

        async def counted(*changes: Any, **options: Any) -> None:
            written.extend(change.value["status"] for change in changes if change.kind == "instances")
            await write(*changes, **options)

        made.shared.store.write = counted  # type: ignore[method-assign]  # which still writes
        record = await made.creator.create(ASKED, LOCAL)
        await made.instances.get(record.id)
        await made.instances.delete(record.id)
        assert written == expected


async def test_instances_of_a_crowd_that_wait_for_each_other_are_written_once(tmp_path: Path) -> None:
    async with composed(tmp_path / "home", make_project(tmp_path), engine=SoonEngine(0.01)) as made:
        written: list[str] = []
        write = made.shared.store.write

        async def counted(*changes: Any, **options: Any) -> None:
            written.extend(change.value["status"] for change in changes if change.kind == "instances")
            await write(*changes, **options)

        made.shared.store.write = counted  # type: ignore[method-assign]  # which still writes
        await asyncio.gather(*(made.creator.create(ASKED, LOCAL) for _ in range(CROWD)))
        # The first ones began alone; each takes ten times as long as an instance does as a rule.
        assert written.count("Running") == CROWD
        assert written.count("Creating") < CROWD / 2
