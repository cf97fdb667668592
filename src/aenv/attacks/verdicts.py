"""The run: every attack of the list against a stage, and the verdict on each.

held          it was made, as a tool, as a command and by the author, and got nothing
broken        it got what it wanted
not enforced  this host cannot contain it; the record of an instance says so too
unclear       it gave no verdict
not run       this host has nothing to attack, or only the project's own tests can tell
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..base.errors import AEnvError
from ..client.address import control_origin
from ..client.api import Api
from .controls import control
from .ground import ground
from .projects import make_project
from .stage import INSIDE, TIMEOUT, Attacked, AttackStage
from .table import ATTACKS, Attack
from .watched import BrokenWall, NotEnforced, Unclear, not_enforced
from .watched_gateway import WATCHED

WallState = Literal["held", "broken", "not enforced", "unclear", "not run"]
Serve = Callable[[Path, list[Path]], AbstractAsyncContextManager[tuple[str, str]]]
"""Starts a gateway with this home and these projects; gives its address and the key of its administrator."""

# Bombs are bounded: where nothing contains them, they end here.
_WANTED = {"processes": 300, "mebibytes": 160, "files": 12_000, "terminals": 1000, "open_files": 3000}
_LIMITED = {"ephemeralStorage": "32Mi", "openFiles": "2000", "pids": "100", "memory": "128Mi", "cpu": "1"}
_HOSTS = ["localhost", "127.0.0.1", "*.example.com"]  # a list that names the host itself, which never counts
_BY_GROUPS = {"fork_bomb": "pids", "memory_bomb": "memory"}
_BY_EGRESS = "reach_host_by_egress"  # means something where there is a way out at all
_BY_AUTHOR = ("files", "processes", "kernel", "network")
_ALLOWED_TO_AUTHORS = "regain_capabilities"  # two of them, to enter namespaces; "get_all_rights" tells of others
_NEEDS = {"read_private_system_files": "private", "use_setuid_program": "setuid"}


@dataclass(frozen=True)
class Verdict:
    """What became of one attack."""

    attack: Attack
    state: WallState
    said: str
    control: str = "-"
    """What the same attack does outside."""


@asynccontextmanager
async def staged(serve: Serve) -> AsyncIterator[AttackStage]:
    """A stage in a temporary folder. It is gone with the block, with every process that was started for it."""
    with tempfile.TemporaryDirectory(prefix="aenv-attacks-", ignore_cleanup_errors=True) as name:
        folder = Path(name)  # this user's alone: what lies here must tempt no other user of the host
        home, host = folder / "home", folder / "host"
        for made in (home, host, folder / "control"):
            made.mkdir(mode=0o700)
        projects = [
            make_project(folder / "attacked"),
            make_project(folder / "attacked-open", name="attacked-open", network="full"),
            make_project(folder / "attacked-egress", name="attacked-egress", network={"egress": _HOSTS}),
            make_project(folder / "hostile", "hostile"),
        ]
        with ground(host, f"token-{secrets.token_hex(16)}") as given:
            projects.append(_author(folder / "pushed", {**given, **INSIDE, "gateway_home": str(home)}))
            async with serve(home, projects) as (url, key), Api(control_origin(url), api_key=key) as api:
                yield AttackStage(api, url, key, folder, {**given, "gateway_home": str(home)})
            _check(given)


async def verdicts(stage: AttackStage, only: Collection[str] = ()) -> AsyncIterator[Verdict]:
    """Each attack of the list, or those named in `only`, one after the other."""
    wanted = [attack for attack in ATTACKS if not only or attack.name in only]
    for family in dict.fromkeys(attack.family for attack in wanted):
        members = [attack for attack in wanted if attack.family == family]
        programs = [attack for attack in members if attack.has_program]
        if programs and family == "resources":
            for attack in programs:
                for verdict in await _clear(_bomb(stage, attack), [attack]):
                    yield verdict
        elif programs:
            made = _authored(stage, programs) if family == "author" else _family(stage, programs)
            for verdict in await _clear(made, programs):
                yield verdict
        for attack in members:
            if not attack.has_program:
                yield await _watch(stage, attack)


async def _clear(made: Awaitable[list[Verdict]], attacks: list[Attack]) -> list[Verdict]:
    """The verdicts; where the gateway did not play its part, that nothing is clear."""
    try:
        return await made
    except (AEnvError, TimeoutError) as error:
        return [Verdict(attack, "unclear", f"{type(error).__name__}: {error}") for attack in attacks]


async def _family(stage: AttackStage, attacks: list[Attack]) -> list[Verdict]:
    """All attacks of a family from one instance. Another instance holds the token as well."""
    token = stage.given["token"]
    held: dict[str, Any] = {"environment_variables": {"TOKEN": token}}
    async with stage.instance() as attacker, stage.instance(**held) as other:
        await other.evaluate(f"open('/workspace/token', 'w').write({token!r})")
        family, given = attacks[0].family, {**stage.given, **INSIDE}
        possible = [attack.name for attack in attacks if stage.given.get(_NEEDS.get(attack.name, "token"))]
        found = {how: await attacker.attack(family, possible, given, how) for how in ("tool", "command")}
    by_author = await _said_by_author(stage, possible) if family in _BY_AUTHOR else {}
    if _BY_EGRESS in possible:
        async with stage.instance("attacked-egress") as attacker:
            for how, verdicts in found.items():
                verdicts |= await attacker.attack(family, [_BY_EGRESS], given, how)
    judged = []
    for attack in attacks:
        if attack.name not in possible:
            judged.append(Verdict(attack, "not run", "this host has no such file"))
            continue
        outside = await asyncio.to_thread(
            control, family, attack.name, dict(stage.given), stage.folder / "control"
        )
        ways = {how: verdicts[attack.name] for how, verdicts in found.items()}
        if attack.name in by_author:
            ways["author"] = by_author[attack.name]
        state, said = _judged(ways)
        judged.append(Verdict(attack, state, said, outside))
    return judged


async def _authored(stage: AttackStage, attacks: list[Attack]) -> list[Verdict]:
    """Those that only an author can try."""
    said = await _said_by_author(stage, [attack.name for attack in attacks])
    return [Verdict(attack, *_judged({"author": said[attack.name]})) for attack in attacks]


async def _said_by_author(stage: AttackStage, names: Collection[str]) -> dict[str, dict[str, Any]]:
    """What became of these attacks when the author's code made them, before there was an instance."""
    async with stage.instance("pushed") as instance:
        said = await instance.said()
    if said["pid"] == 1:
        raise AEnvError("the author's code was not loaded ahead, so nothing is proven")
    return {name: said[name] for name in names if name != _ALLOWED_TO_AUTHORS}


async def _bomb(stage: AttackStage, attack: Attack) -> list[Verdict]:
    """From an instance of its own for each way: it may take the instance along."""
    found = {}
    for how in ("tool", "command"):
        async with stage.instance(resources=_LIMITED) as attacker, stage.instance() as neighbour:
            reason = not_enforced(await attacker.record(), _BY_GROUPS.get(attack.name, "-"))
            if reason:
                return [Verdict(attack, "not enforced", reason)]
            given = {**stage.given, **_WANTED, **INSIDE}
            found[how] = await _bombed(attacker, attack, given, how)
            try:
                await neighbour.evaluate("said = 1")
            except AEnvError as error:
                said = f"as a {how}: another instance does not answer: {error}"
                return [Verdict(attack, "broken", said)]
    return [Verdict(attack, *_judged(found))]


async def _bombed(attacker: Attacked, attack: Attack, given: dict[str, Any], how: str) -> dict[str, Any]:
    try:
        verdict = (await attacker.attack(attack.family, [attack.name], given, how))[attack.name]
    except AEnvError as error:
        verdict = {"succeeded": None, "said": str(error)}
    if verdict["succeeded"] is None and "exit code 137" in verdict["said"]:
        return {"succeeded": False, "said": "its processes were ended"}
    if verdict["succeeded"] is None:
        record = await attacker.ended()
        if record.status != "Running":
            return {"succeeded": False, "said": record.reason or "the instance has ended"}
    return verdict


async def _watch(stage: AttackStage, attack: Attack) -> Verdict:
    watch = WATCHED.get(attack.name)
    if not watch:
        return Verdict(attack, "not run", "only the project's own tests can tell")
    try:
        async with asyncio.timeout(4 * TIMEOUT):
            return Verdict(attack, "held", await watch(stage))
    except BrokenWall as error:
        return Verdict(attack, "broken", str(error))
    except NotEnforced as error:
        return Verdict(attack, "not enforced", str(error))
    except (Unclear, AEnvError, OSError, TimeoutError, LookupError, ValueError) as error:
        return Verdict(attack, "unclear", f"{type(error).__name__}: {error}")


def _judged(found: Mapping[str, Mapping[str, Any]]) -> tuple[WallState, str]:
    for succeeded, state in ((True, "broken"), (None, "unclear")):
        for how, verdict in found.items():
            if verdict["succeeded"] is succeeded:
                return state, f"as a {how}: {verdict['said']}"  # type: ignore[return-value]
    return "held", str([*found.values()][-1]["said"])


def _author(folder: Path, given: Mapping[str, Any]) -> Path:
    """The project of an author who attacks when it is loaded."""
    make_project(folder, "pushed")
    possible = [attack for attack in ATTACKS if attack.has_program and given.get(_NEEDS.get(attack.name, "token"))]
    families = {
        family: [attack.name for attack in possible if attack.family == family]
        for family in (*_BY_AUTHOR, "author")
    }
    (folder / "orders.json").write_text(json.dumps({"attacks": families, "given": dict(given)}))
    return folder


def _check(given: Mapping[str, Any]) -> None:
    """What no single attack would show: the host's things are as they were."""
    with contextlib.suppress(OSError), open(f"/proc/{given['victim']}/stat") as file:
        alive = file.read().rpartition(")")[2].split()[0] != "Z"
        if alive and Path(given["secret"]).read_text() == given["token"]:
            return
    raise AEnvError("the process or the file on the host that the attacks were led to is gone")
