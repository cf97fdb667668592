"""Kinship: which instances were made by which others, and what their grants still allow.

Every ancestor's grant counts for what is done below it, so that none can be exceeded through a child.
Not here: the requests of instances (`gateway/child_routes.py`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from ...base import refs
from ...base.config import Project, is_folder_variable
from ...base.errors import Forbidden, GrantExceeded, InvalidRequest, NotFound, Unauthenticated
from ...base.models import CreateInstance, secrets_in
from ...base.refs import Ref
from ..serving.accounts import LOCAL, Accounts, Caller, Role
from . import admission
from .catalog import Catalog
from .records import Record
from .supervised import Supervised
from .supervisor import Supervisor

GRACE = 5.0  # seconds that a child lives longer than it may be called: a call that is cut off learns why
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
        if instance is None or not instance.is_live or instance.record.grants is None:
            raise NotFound(f"instance {id!r} not found: it has ended, or its config.json has no 'grants'")
        return instance

    def child(self, parent: Supervised, id: str) -> Supervised:
        """One that `parent` has made itself. NotFound for every other, whoever made it."""
        instance = self._supervisor.get(id)
        if instance is None or instance.record.parent != parent.record.id:
            raise NotFound(f"instance {id!r} not found among those that this instance has made")
        return instance

    def until(self, parent: Supervised) -> float:
        """When the first of the grants ends that `parent` acts under, in seconds since the epoch."""
        return min(_end(record) for record in self._line(parent))

    def left(self, parent: Supervised) -> float:
        """For how many seconds it may still use others; 0 or less when its time is over."""
        return self.until(parent) - time.time()

    def over(self, parent: Supervised) -> GrantExceeded:
        """Why it may do no more when its time is over."""
        first = min(self._line(parent), key=_end)
        return exceeded(first, "seconds", "its time is over")

    def count_call(self, parent: Supervised) -> None:
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
                raise exceeded(instance.record, "instances", "as many live at the moment; end one first")

    async def request(self, parent: Supervised, asked: CreateInstance) -> tuple[CreateInstance, Caller]:
        """What is created for `parent`, and by whom: one version, within the grant."""
        record = parent.record
        caller = await self._caller(record)
        _check_fields(asked)
        project, ref = await self._environment(record, admission.ref_of(asked), caller)
        own = parent.asked[0] if parent.asked else None
        changes: dict[str, Any] = {
            "env_name": str(ref),
            "owner": record.owner if caller.is_admin else None,
            "labels": {**asked.labels, **record.labels},
            "model": own.model if own and not project.deploy.isolation else None,
            "self_check": True,
        }
        return asked.model_copy(update=changes), caller

    async def _environment(self, parent: Record, ref: Ref, caller: Caller) -> tuple[Project, Ref]:
        """The project of a child and its one version. GrantExceeded when the grant does not have it."""
        allowed = [refs.parse(text) for text in _allowed(parent, "environments")]
        named = [each for each in allowed if each.name == ref.name]
        if not named:
            raise exceeded(parent, "environments", f"not {str(ref)!r}")
        if ref.version is None and ref.range is None:
            ref = named[0]
        project = await self._catalog.find(ref, caller)
        version = ref.version or project.version
        if not any(each.pick([version]) for each in named):
            raise exceeded(parent, "environments", f"not '{ref.name}@{version}'")
        if author := _allowed(parent, "author"):
            # As that user would find it: an author gets no more by the hands of those who run the environment.
            await self._catalog.find(Ref(ref.name, version), Caller(author, Role.USER))
            if project.deploy.environment_variables.secrets:
                raise Forbidden(
                    f"environment '{project.ref}' asks for secrets, and '{parent.environment}', which uses it, "
                    "was pushed by another user"
                )
        return project, Ref(ref.name, version)

    async def _caller(self, record: Record) -> Caller:
        """As whom its children are made: its owner, and never more than a user."""
        if record.account is None:
            return LOCAL
        account = await self._accounts.get(record.account)
        if not await self._accounts.may_act(record.account):
            raise Unauthenticated("the account that this instance was made with was revoked, or is a viewer's")
        return Caller(record.owner or account.user, Role.USER, account.id, account.max_instances)

    def _check_time(self, parent: Supervised) -> None:
        if self.left(parent) <= 0:
            raise self.over(parent)

    def _instances(self, instance: Supervised | None) -> Iterator[Supervised]:
        """It, its parent, and so on; as far as they live."""
        while instance and instance.record.grants is not None:
            yield instance
            instance = self._supervisor.get(instance.record.parent) if instance.record.parent else None

    def _line(self, instance: Supervised) -> list[Record]:
        return [each.record for each in self._instances(instance)]

    def _descendants(self, instance: Supervised) -> list[Supervised]:
        return [one for one in self._supervisor.values() if instance in self._instances(self._parent_of(one))]

    def _parent_of(self, instance: Supervised) -> Supervised | None:
        return self._supervisor.get(instance.record.parent) if instance.record.parent else None


def granted(project: Project, owner: str | None) -> dict[str, Any] | None:
    """What the record of an instance of `owner` says of its grant; None where its environment has none."""
    grants = project.grants
    if grants is None:
        return None
    is_own = not project.is_published or (owner is not None and project.owner == owner == project.pushed_by)
    return {
        "environments": [str(ref) for ref in grants.environments],
        "calls": grants.calls,
        "depth": grants.depth,
        "seconds": grants.seconds,
        "instances": grants.instances,
        "author": "" if is_own else project.pushed_by or project.owner or "-",
    }


def exceeded(record: Record, field: str, why: str) -> GrantExceeded:
    value = _allowed(record, field)
    spelled = ", ".join(value) if isinstance(value, list) else value
    return GrantExceeded(
        f"the grant '{field}: {spelled}' of '{record.environment}' does not allow this: {why}",
        details={"field": field, "value": value},
    )


def _allowed(record: Record, field: str) -> Any:
    assert record.grants is not None
    return record.grants[field]


def _end(record: Record) -> float:
    return float(record.created_at + _allowed(record, "seconds"))


def _check_fields(asked: CreateInstance) -> None:
    for name in _REFUSED:
        if getattr(asked, name):
            raise InvalidRequest(f"field {name!r}: an instance cannot say that of another one; leave it out")
    if asked.network not in (None, "none"):
        raise InvalidRequest("field 'network': an instance gives another one no network; leave it out, or 'none'")
    for name in secrets_in(asked.environment_variables):
        raise InvalidRequest(f"field 'environment_variables.{name}': an instance cannot name secrets")
    for name in asked.environment_variables:
        if name.startswith(_OURS) or is_folder_variable(name):
            raise InvalidRequest(f"field 'environment_variables.{name}': an instance cannot set this variable")
