"""Kinship: which instances were made by which others, and what their grants still allow.

Every ancestor's grant counts for what is done below it, so that none can be exceeded through a child.
Not here: the requests of instances (`gateway/child_routes.py`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

from ...base import refs, wire
from ...base.config import Project, is_folder_variable
from ...base.errors import Forbidden, GrantExceeded, InvalidRequest, NotFound, Unauthenticated
from ...base.models import CreateInstance, secrets_in
from ...base.refs import Ref
from ..serving.accounts import LOCAL, Accounts, Caller, Role
from . import admission
from .admission import MAX_TTL
from .catalog import Catalog
from .records import Record, RecordedGrant, RecordedPart, RecordedParts
from .supervised import Supervised
from .supervisor import Supervisor

GRACE = 5.0  # seconds that a child lives longer than it may be called: a call that is cut off learns why
MOST_BELOW = 64
"""How many instances a create of a composed environment may bring about."""
_FOR_LONG = f"{MAX_TTL:.0f}s"  # a part lives as long as the whole
_OURS = "AENV_"
_REFUSED = ("datasource", "model", "owner", "mount_points", "init_command")
"""Fields of a create that speak for its owner: what an instance says there is refused."""


class Kinship:
    """The children of this gateway's instances."""

    def __init__(self, supervisor: Supervisor, catalog: Catalog, accounts: Accounts) -> None:
        self._supervisor = supervisor
        self._catalog = catalog
        self._accounts = accounts

    def parent(self, id: str) -> Supervised:
        """The instance that asks. NotFound when it has ended, or may use no other environments."""
        instance = self._supervisor.get(id)
        if instance is None or not instance.is_live or not instance.record.may_have_children:
            raise NotFound(f"instance {id!r} not found: it has ended, or its config.json has no 'grants'")
        return instance

    def limited_by(self, parent: Supervised, child: Supervised) -> Supervised | None:
        """Whose grant, and whose ancestors', a call of `child` counts for; a part's counts not for its whole."""
        return self.parent_of(parent) if child.record.part else parent

    def child(self, parent: Supervised, id: str) -> Supervised:
        """One that `parent` has made itself. NotFound for every other, whoever made it."""
        instance = self._supervisor.get(id)
        if instance is None or instance.record.parent != parent.record.id:
            raise NotFound(f"instance {id!r} not found among those that this instance has made")
        return instance

    def until(self, parent: Supervised | None) -> float:
        """When the first of the grants ends that `parent` acts under, in seconds since the epoch, or infinity."""
        return min((_end(record) for record in self._line(parent)), default=math.inf)

    def left(self, parent: Supervised | None) -> float | None:
        """For how many seconds it may still use others; 0 or less when its time is over, None without limit."""
        until = self.until(parent)
        return None if until == math.inf else until - time.time()

    def over(self, parent: Supervised | None) -> GrantExceeded:
        """Why it may do no more when its time is over."""
        first = min(self._line(parent), key=_end)
        return exceeded(first, "seconds", "its time is over")

    def count_call(self, parent: Supervised | None) -> None:
        """One call of a child. GrantExceeded where a grant is used up; then nothing is counted."""
        self._check_time(parent)
        line = list(self._instances(parent))
        for instance in line:
            if instance.calls_made >= _allowed(instance.record, "calls"):
                raise exceeded(instance.record, "calls", "its calls are used up")
        for instance in line:
            instance.calls_made += 1

    def check_room(self, parent: Supervised) -> None:
        """GrantExceeded where another child would be too deep, too late or one too many."""
        self._check_time(parent)
        for distance, instance in enumerate(self._instances(parent), 1):
            if distance > _allowed(instance.record, "depth"):
                raise exceeded(instance.record, "depth", "no more levels of children")
            if len(self._descendants(instance)) >= _allowed(instance.record, "instances"):
                raise exceeded(instance.record, "instances", "that many are running; end one first")

    # Parts of composed environments

    def part(self, parent: Supervised, name: str) -> str:
        """The id of its part of this name: one for all requests, unless the instance of that has ended."""
        id = parent.part_ids.get(name, "")
        if id in self._supervisor:
            return id
        ref = refs.parse(_named(parent.record, name).env)
        self.check_size(parent)
        id = parent.part_ids[name] = wire.new_instance_id(ref.name)
        return id

    def shares_workspace(self, parent: Supervised, name: str) -> bool:
        """Whether its part of this name works in its workspace."""
        return _named(parent.record, name).shared

    def check_size(self, parent: Supervised) -> None:
        """InvalidRequest where one create brings about too many instances, however deeply they are nested."""
        *_, top = self._ancestors(parent)
        if len(self._descendants(top)) >= MOST_BELOW:
            raise InvalidRequest(f"'{top.record.environment}' is composed of more than {MOST_BELOW} instances")
        for instance in self._instances(self.parent_of(parent)):
            if len(self._descendants(instance)) >= _allowed(instance.record, "instances"):
                raise exceeded(instance.record, "instances", "that many are running; end one first")

    async def part_request(self, parent: Supervised, name: str) -> tuple[CreateInstance, Caller]:
        """What is created for the part of this name, and by whom."""
        record, wanted = parent.record, _named(parent.record, name)
        caller = await self._caller(record)
        ref = refs.parse(wanted.env)
        project = await self._catalog.find(ref, caller)
        self._check_circle(parent, str(project.ref))
        assert record.parts is not None
        await self._check_author(record, record.parts.author, project, ref)
        asked = CreateInstance(
            env_name=str(ref), ttl=_FOR_LONG, environment_variables=wanted.variables, labels=record.labels
        )
        return asked.model_copy(update=self._inherited(parent, caller, project)), caller

    def _check_circle(self, parent: Supervised, environment: str) -> None:
        """InvalidRequest where an environment would be a part of itself, in as many levels as there may be."""
        within = [environment]
        for instance in self._ancestors(parent):
            within.insert(0, instance.record.environment)
            if instance.record.environment == environment:
                raise InvalidRequest(f"'{environment}' contains itself: {' uses '.join(within)}")
            if not instance.record.part:
                return

    # Children that the code of an instance asks for

    async def request(self, parent: Supervised, asked: CreateInstance) -> tuple[CreateInstance, Caller]:
        """What is created for `parent`, and by whom: one version, within the grant."""
        record = parent.record
        if record.grants is None:
            raise GrantExceeded(f"'{record.environment}' may use its parts alone: its config.json has no 'grants'")
        caller = await self._caller(record)
        _check_fields(asked)
        project, ref = await self._environment(record, admission.ref_of(asked), caller)
        inherited = self._inherited(parent, caller, project)
        labels = {**asked.labels, **record.labels}
        return asked.model_copy(update={"env_name": str(ref), "labels": labels, **inherited}), caller

    def _inherited(self, parent: Supervised, caller: Caller, project: Project) -> dict[str, Any]:
        """What a child has from its parent, whatever was asked for."""
        own = parent.asked[0] if parent.asked else None
        return {
            "owner": parent.record.owner if caller.is_admin else None,
            "model": own.model if own and not project.deploy.isolation else None,
            "self_check": True,
        }

    async def _environment(self, parent: Record, ref: Ref, caller: Caller) -> tuple[Project, Ref]:
        """The project of a child and its one version. GrantExceeded when the grant does not have it."""
        allowed = [refs.parse(text) for text in _allowed(parent, "environments")]
        named = [each for each in allowed if each.name == ref.name]
        # Before it is looked for: of what it may not use, an instance does not learn whether there is such.
        if not named or (ref.version and not _has(named, ref.version)):
            raise exceeded(parent, "environments", f"not {str(ref)!r}")
        if ref.version is None and ref.range is None:
            ref = named[0]
        project = await self._catalog.find(ref, caller)
        version = ref.version or project.version
        if not _has(named, version):
            raise exceeded(parent, "environments", f"not '{ref.name}@{version}'")
        await self._check_author(parent, _allowed(parent, "author"), project, Ref(ref.name, version))
        return project, Ref(ref.name, version)

    async def _check_author(self, parent: Record, author: str, project: Project, ref: Ref) -> None:
        """An author gets no more by the hands of those who run the environment than that user could find."""
        if not author:
            return
        await self._catalog.find(ref, Caller(author, Role.USER))
        if project.deploy.environment_variables.secrets:
            raise Forbidden(
                f"environment '{project.ref}' asks for secrets, and '{parent.environment}', which uses it, "
                "was pushed by another user"
            )

    async def _caller(self, record: Record) -> Caller:
        """As whom its children are made: its owner, and never more than a user."""
        if record.account is None:
            return LOCAL
        account = await self._accounts.get(record.account)
        if not await self._accounts.may_act(record.account):
            raise Unauthenticated("the account that this instance was made with was revoked, or is a viewer's")
        return Caller(record.owner or account.user, Role.USER, account.id, account.max_instances)

    def _check_time(self, parent: Supervised | None) -> None:
        left = self.left(parent)
        if left is not None and left <= 0:
            raise self.over(parent)

    def _instances(self, instance: Supervised | None) -> Iterator[Supervised]:
        """It, its parent, and so on, as far as they live: those that have a grant."""
        return (one for one in self._ancestors(instance) if one.record.grants is not None)

    def _ancestors(self, instance: Supervised | None) -> Iterator[Supervised]:
        while instance:
            yield instance
            instance = self.parent_of(instance)

    def _line(self, instance: Supervised | None) -> list[Record]:
        return [each.record for each in self._instances(instance)]

    def _descendants(self, instance: Supervised) -> list[Supervised]:
        return [one for one in self._supervisor.values() if instance in self._ancestors(self.parent_of(one))]

    def parent_of(self, instance: Supervised) -> Supervised | None:
        """The instance that made it, if that lives."""
        return self._supervisor.get(instance.record.parent) if instance.record.parent else None


def granted(project: Project, owner: str | None) -> RecordedGrant | None:
    """What the record of an instance of `owner` says of its grant; None where its environment has none."""
    grants = project.grants
    if grants is None:
        return None
    return RecordedGrant(
        environments=[str(ref) for ref in grants.environments],
        calls=grants.calls,
        depth=grants.depth,
        seconds=grants.seconds,
        instances=grants.instances,
        author=_author(project, owner),
    )


def composed(project: Project, owner: str | None) -> RecordedParts | None:
    """What the record of an instance of `owner` says of its parts; None where its environment has none."""
    if not project.uses:
        return None
    named = {
        part.name: RecordedPart(str(part.environment), part.shares_workspace, dict(part.variables.texts))
        for part in project.uses
    }
    return RecordedParts(_author(project, owner), named)


def _author(project: Project, owner: str | None) -> str:
    """Who pushed the environment, if that is another user than the owner of the instance; else empty."""
    is_own = not project.is_published or (owner is not None and project.owner == owner == project.pushed_by)
    return "" if is_own else project.pushed_by or project.owner or "-"


def _named(record: Record, name: str) -> RecordedPart:
    """What its part of this name shall be."""
    known = record.parts.named if record.parts else {}
    if name not in known:
        raise NotFound(f"'{record.environment}' has no part {name!r}; it has {', '.join(known) or 'none'}")
    return known[name]


def _has(allowed: list[Ref], version: str) -> bool:
    return any(each.pick([version]) for each in allowed)


def exceeded(record: Record, field: str, why: str) -> GrantExceeded:
    value = _allowed(record, field)
    spelled = ", ".join(value) if isinstance(value, list) else value
    return GrantExceeded(f"the grant '{field}: {spelled}' of '{record.environment}' does not allow this: {why}")


def _allowed(record: Record, field: str) -> Any:
    assert record.grants is not None
    return getattr(record.grants, field)


def _end(record: Record) -> float:
    return float(record.created_at + _allowed(record, "seconds"))


def _check_fields(asked: CreateInstance) -> None:
    for name in _REFUSED:
        if getattr(asked, name):
            raise InvalidRequest(f"field {name!r}: an instance cannot set this for another one; leave it out")
    if asked.network not in (None, "none"):
        raise InvalidRequest(
            "field 'network': an instance cannot give another one a network; leave it out, or write 'none'"
        )
    for name in secrets_in(asked.environment_variables):
        raise InvalidRequest(f"field 'environment_variables.{name}': an instance cannot name secrets")
    for name in asked.environment_variables:
        if name.startswith(_OURS) or is_folder_variable(name):
            raise InvalidRequest(f"field 'environment_variables.{name}': an instance cannot set this variable")
