"""Publishing: a version comes in, is replaced until it is released, and then never again.

Every push is one write, of all its parts or none, and demands that no other push came first.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from ...base import refs
from ...base.errors import Conflict, InvalidRequest, of_field
from ...base.models import PushEnvironment
from ...base.refs import Ref
from ...base.wire import timestamp
from ..serving.accounts import Caller
from ..serving.masking import unmasked
from ..stores.base import Delete, Put, Stale, Store
from . import audit, changes, version_details
from .access import EnvironmentAccess
from .environment_records import KIND, READY, RELEASED, EnvironmentRecord, read_status
from .environments import POLICIES, Environments
from .pinned_parts import PinnedPart, offered_tools, pinned
from .uploads import BundleFacts, Uploads
from .version_details import VersionDetails

_FROM_CONFIG = ("description", "tags", "artifacts", "buildConfig", "testConfig", "deployConfig", "dependencies")
_RESERVED = ("access", "audit")  # what routes say in place of a version


@dataclass(frozen=True)
class _SentVersion:
    """The code of a push: a bundle, what its config.json declares, and what to forget once it is taken."""

    facts: BundleFacts | None
    declared: PushEnvironment
    forget: tuple[Delete, ...] = ()
    parts: tuple[PinnedPart, ...] = ()


class Publishing:
    def __init__(self, store: Store, uploads: Uploads, environments: Environments) -> None:
        self._store = store
        self._uploads = uploads
        self._environments = environments

    async def create(self, body: PushEnvironment, caller: Caller) -> None:
        """Publish a new version; the first of its name makes the caller the owner. Conflict when it exists."""
        ref = _new_ref(body)
        while True:
            known = await self._environments.check_push(ref, caller)
            policy = (
                EnvironmentAccess.of(known.value)
                if known
                else EnvironmentAccess(caller.user, body.access or "team")
            )
            _refuse_other_access(policy, body)
            [existing] = await self._store.get(KIND, str(ref))
            sent = await self._sent(ref, body, caller)
            new = _merged(EnvironmentRecord(ref.name, body.version or "", policy, status=0), body, sent, caller)
            if existing:
                raise _exists(EnvironmentRecord.of(existing), new)
            with suppress(Stale):
                await self._store.write(
                    new.put(0),
                    await self._details(new, VersionDetails(), body, sent),
                    # Written even if unchanged: a concurrent change of the policy must see this version, too.
                    Put(POLICIES, ref.name, policy.value(), known.revision if known else 0),
                    audit.entry(caller, "push", ref.name, ref.version, new.digest),
                    *sent.forget,
                )
                return

    async def update(self, ref: Ref, body: PushEnvironment, caller: Caller) -> None:
        """Replace what is given of a version. A released one stays as it is: fine if nothing would change."""
        _refuse_other_ref(ref, body)
        while True:
            document, old = await self._environments.owned(ref, caller)
            assert old.policy
            _refuse_other_access(old.policy, body)
            sent = await self._sent(ref, body, caller)
            new = _merged(old, body, sent, caller)
            if old.status == RELEASED:
                if differing := new.differs_from(old):
                    raise _immutable(old, new, differing)
                return
            [about] = await self._store.get(version_details.KIND, str(ref))
            replaced = await self._uploads.unused(old.digest) if new.digest != old.digest else []
            with suppress(Stale):
                await self._store.write(
                    new.put(document.revision),
                    await self._details(new, VersionDetails.of(about), body, sent),
                    audit.entry(caller, "update", ref.name, ref.version, new.digest),
                    *sent.forget,
                    *replaced,
                )
                return

    async def _sent(self, ref: Ref, body: PushEnvironment, caller: Caller) -> _SentVersion:
        """The code that comes with a push, which must be the code of this very version."""
        forget: tuple[Delete, ...] = ()
        if body.bundle:
            facts = await self._uploads.sent(body.bundle, caller)
        elif archive := await self._uploads.sent_for(ref, caller):
            facts, forget = archive[0], (archive[1],)
        else:
            return _SentVersion(None, PushEnvironment())
        config = facts.config
        said = f"{config.get('name')}@{config.get('version')}"
        if said != str(ref):
            message = f"it is of {said[:200]!r}, and not of '{ref}'; see its config.json"
            raise InvalidRequest(f"field 'bundle': {message}")
        try:
            declared = PushEnvironment.model_validate(
                {key: config[key] for key in _FROM_CONFIG if config.get(key) is not None}
            )
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise InvalidRequest(f"config.json in the bundle: field {where!r}: {first['msg']}") from None
        return _SentVersion(facts, declared, forget, await pinned(config, self._environments, caller))

    async def _details(
        self, new: EnvironmentRecord, before: VersionDetails, body: PushEnvironment, sent: _SentVersion
    ) -> Put:
        """Everything about a version that lists do not show."""
        facts = sent.facts
        told = {kind: offers for kind, offers in body.metadata or () if offers is not None}
        about = VersionDetails(
            **{**vars(facts.surface if facts else before.offers), **told},
            readme=facts.readme if facts else body.readme or before.readme,
            dependencies=_dependencies(body, sent, before.dependencies),
            previous=before.previous,
            changes=before.changes,
        )
        if sent.parts:
            about = replace(about, tools=await offered_tools(about.tools, sent.parts, self._environments))
        if facts:
            about = await self._compared(about, new, facts)
        return about.put(new.ref)

    async def _compared(self, about: VersionDetails, new: EnvironmentRecord, facts: BundleFacts) -> VersionDetails:
        """With the version before this one, and what has changed since."""
        previous = await self._environments.before(new.ref)
        old = await self._uploads.facts(previous.digest) if previous and previous.digest else None
        if previous is None or old is None:
            return replace(about, previous=previous.version if previous else None, changes=None)
        old_tools = (await self._environments.about(previous)).tools
        found = changes.compare(facts.files, old.files, about.tools, old_tools)
        return replace(about, previous=previous.version, changes=found)


def _new_ref(body: PushEnvironment) -> Ref:
    for field in ("name", "version"):
        if not getattr(body, field):
            raise InvalidRequest(f"field {field!r}: is required")
    with of_field("name"):
        refs.parse(body.name or "")
    with of_field("version"):
        ref = refs.exact(body.name or "", body.version or "")
        if ref.version in _RESERVED:
            raise InvalidRequest(
                f"bad version {ref.version!r} of {ref.name!r}; name a single version, as in '1.0.0'"
            )
        return ref


def _merged(
    base: EnvironmentRecord, body: PushEnvironment, sent: _SentVersion, caller: Caller
) -> EnvironmentRecord:
    """A version with what was sent; what is left out comes from the bundle's config.json, else stays."""

    def chosen(name: str) -> Any:
        given, declared = getattr(body, name), getattr(sent.declared, name)
        return given if given is not None else declared if declared is not None else getattr(base, name)

    deploy = chosen("deploy_config")
    artifacts = tuple(
        {str(key): str(value) for key, value in artifact.items() if value is not None}
        for artifact in chosen("artifacts")
    )
    now = timestamp()
    digest = sent.facts.digest if sent.facts else base.digest
    status = base.status
    if body.status is not None:
        status = read_status(body.status)
    elif status < READY and (digest or artifacts):
        status = READY
    return replace(
        base,
        description=chosen("description"),
        tags=tuple(dict.fromkeys(chosen("tags"))),
        code_url=chosen("code_url"),
        status=status,
        artifacts=artifacts,
        build_config=chosen("build_config"),
        test_config=chosen("test_config"),
        deploy_config=unmasked(deploy, base.deploy_config) if deploy is not None else None,
        digest=digest,
        parts=tuple(str(part.taken.ref) for part in sent.parts) if sent.facts else base.parts,
        size_bytes=sent.facts.size_bytes if sent.facts else base.size_bytes,
        pushed_by=caller.user,
        created_at=base.created_at or now,
        updated_at=now,
    )


def _dependencies(body: PushEnvironment, sent: _SentVersion, before: dict[str, list[str]]) -> dict[str, list[str]]:
    known: dict[str, list[str]] = {"requirements": [], "environments": [], **before}
    for said in (sent.declared.dependencies, body.dependencies):
        known |= said.model_dump(exclude_none=True) if said else {}
    if sent.facts:
        known["requirements"] = sent.facts.requirements
        known.pop("parts", None)
        if sent.parts:
            known["parts"] = [part.described for part in sent.parts]
    with of_field("dependencies.environments"):
        for reference in known["environments"]:
            refs.parse(reference)
    return known


def _refuse_other_ref(ref: Ref, body: PushEnvironment) -> None:
    for field, given, own in (("name", body.name, ref.name), ("version", body.version, ref.version)):
        if given and given != own:
            raise InvalidRequest(f"field {field!r}: the body says {given!r}, and the path names '{ref}'")


def _refuse_other_access(policy: EnvironmentAccess, body: PushEnvironment) -> None:
    if body.access and body.access != policy.access:
        raise InvalidRequest(f"field 'access': it is {policy.access!r}; PUT /env/NAME/access changes it")


def _exists(old: EnvironmentRecord, new: EnvironmentRecord) -> Conflict:
    who = f"environment '{old.ref}' exists already, pushed by {old.pushed_by!r}"
    if not new.differs_from(old):
        return Conflict(f"{who}, with the same content ({_digest(old)})")
    return Conflict(f"{who}: it has {_digest(old)}, and you sent {_digest(new)}; push another version")


def _immutable(old: EnvironmentRecord, new: EnvironmentRecord, differing: list[str]) -> Conflict:
    what = f"environment '{old.ref}' is released and cannot change"
    if "digest" in differing:
        return Conflict(f"{what}: it has {_digest(old)}, and you sent {_digest(new)}; push another version")
    names = ", ".join(f"'{name}'" for name in differing)
    return Conflict(f"{what}: you sent another {names} with the same {_digest(old)}; push another version")


def _digest(environment: EnvironmentRecord) -> str:
    return f"sha256 {environment.digest}" if environment.digest else "no bundle"
