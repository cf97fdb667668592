"""The environments that the hub knows: found, listed, released, given to others, deleted.

Not here: how a version comes in (`publishing.py`).
"""

from __future__ import annotations

import difflib
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...artifacts.bundles import packing
from ...artifacts.data.builtin import Folders
from ...base import refs
from ...base.config import Project
from ...base.errors import Conflict, Forbidden, NotFound
from ...base.models import AccessPolicy
from ...base.refs import Ref
from ...base.wire import timestamp
from ..serving.accounts import Caller, Role
from ..stores.base import Delete, Document, Put, Stale, Store, walk
from . import audit, metadata, version_details
from .access import EnvironmentAccess, lists_of
from .environment_records import KIND, RELEASED, EnvironmentRecord
from .reserved import Reserved
from .uploads import Uploads
from .version_details import VersionDetails

POLICIES = "policies"
_NEAR_AMONG = 1000
_MAX_NEAR = 10
_SIMILAR = 0.75  # "ecco" is to "echo", and "my-env" not to "swe-env", which ends as every second name does
_READMES = ("README.md", "README.rst", "README.txt", "README")


@dataclass(frozen=True)
class Filter:
    name: str = ""
    tags: tuple[str, ...] = ()
    words: tuple[str, ...] = ()

    def admits(self, name: str, description: str, tags: Iterable[str]) -> bool:
        """Whether it has the name, all the tags, and somewhere in them or in the description all the words."""
        tags = set(tags)
        text = " ".join((name, description, *tags)).lower() if self.words else ""
        fits = (not self.name or name == self.name) and tags.issuperset(self.tags)
        return fits and all(word in text for word in self.words)


class Environments:
    """Versions in a store, beside them the project folders of this machine, and after them what is built in."""

    def __init__(self, store: Store, uploads: Uploads, folders: Folders, built_in: Folders) -> None:
        self._store = store
        self._uploads = uploads
        self._folders, self._built_in = _described(folders), _described(built_in)
        self._projects = (folders, built_in)
        self._reserved = Reserved(store, folders)

    # Finding

    async def find(self, ref: Ref, caller: Caller, *, built_in: bool = True) -> EnvironmentRecord:
        """The version that is meant: of a range the latest. NotFound also when the caller may not see it.

        What comes with the package is found last, after what administrators have published under its name, and
        only where `built_in` is wanted.
        """
        folders = self._folders.get(ref.name, {}) if caller.role is not Role.ANONYMOUS else {}
        version = ref.pick(folders)
        if version is not None:
            return folders[version]
        found = await self._published(ref)
        if found and _sees(found, caller) and await self._counts(found, caller):
            return found
        ours = self._built_in.get(ref.name, {}) if built_in and caller.role is not Role.ANONYMOUS else {}
        if version := ref.pick(ours):
            return ours[version]
        raise NotFound(f"environment {str(ref)!r} not found; {await self._near(ref, caller)}")

    async def before(self, ref: Ref) -> EnvironmentRecord | None:
        """The version before another, among the published ones."""
        async for document in self._versions(ref.name):
            if refs.Version(document.value["version"]) < refs.Version(ref.version or ""):
                return EnvironmentRecord.of(document)
        return None

    def is_folder(self, ref: Ref) -> bool:
        return ref.version in self._folders.get(ref.name, {})

    async def about(self, environment: EnvironmentRecord) -> VersionDetails:
        """What lists do not show of a version."""
        if environment.policy is None:
            return _read_folder(self._project(environment))
        [document] = await self._store.get(version_details.KIND, str(environment.ref))
        return VersionDetails.of(document)

    async def details(self, environment: EnvironmentRecord) -> dict[str, Any]:
        """Everything that is known about a version: the published `EnvDetails`."""
        about, policy = await self.about(environment), environment.policy
        return {
            **environment.described(),
            "owner": policy.owner if policy else None,
            "access": policy.access if policy else "team",
            "digest": environment.digest,
            "size_bytes": environment.size_bytes,
            "pushed_by": environment.pushed_by,
            **about.value(),
            **({} if policy else {"code_digest": _digest(self._project(environment))}),
        }

    def _project(self, folder: EnvironmentRecord) -> Project:
        ours = [known.get(folder.name, {}) for known in self._projects]
        return next(one[folder.version] for one in ours if folder.version in one)

    async def history(self, name: str, caller: Caller) -> dict[str, Any]:
        """An environment as a whole: its policy, and its versions, newest first."""
        known = [*self._folders.get(name, {}).values()] if caller.role is not Role.ANONYMOUS else []
        known += [EnvironmentRecord.of(document) async for document in self._versions(name)]
        known = [environment for environment in known if _sees(environment, caller)]
        if not known and caller.role is not Role.ANONYMOUS:
            known = [*self._built_in.get(name, {}).values()]
        if not known:
            raise NotFound(f"environment {name!r} not found; {await self._near(Ref(name), caller)}")
        known.sort(key=lambda environment: refs.Version(environment.version), reverse=True)
        policy = next((one.policy for one in known if one.policy), None)
        shown = policy.value() if policy else {"owner": None, "access": "team"}
        if policy is None or not policy.is_written_by(caller):
            shown |= {"readers": [], "writers": []}
        found = await self._store.get(version_details.KIND, *(str(one.ref) for one in known))
        about = [VersionDetails.of(document) for document in found]
        since = [{"previous": one.previous, "changes": one.changes} for one in about]
        lines = [{**one.history_line(), **changes} for one, changes in zip(known, since, strict=True)]
        return {"name": name, **shown, "versions": lines}

    async def list(
        self, wanted: Filter, caller: Caller, *, limit: int, offset: int
    ) -> tuple[list[EnvironmentRecord], int]:
        """A page of what the caller may see, by name and version, and how much there is in all.

        Not what is built in: see `built_in`.
        """
        folders = [one for name in sorted(self._folders) for one in self._folders[name].values()]
        folders = [
            one for one in folders if wanted.admits(one.name, one.description, one.tags) and _sees(one, caller)
        ]
        start = max(0, offset - len(folders))
        left = limit - len(folders[offset : offset + limit])
        if wanted == Filter():
            page = await self._store.page(KIND, *lists_of(caller), limit=left, offset=start)
            found, total = [EnvironmentRecord.of(document) for document in page.documents], page.total
        else:
            matching = [one async for one in self._matching(wanted, caller)]
            found, total = matching[start : start + left], len(matching)
        return [*folders[offset : offset + limit], *found], len(folders) + total

    def built_in(self, wanted: Filter, caller: Caller) -> Sequence[EnvironmentRecord]:
        """What comes with the package, once each, under names of its own."""
        if caller.role is Role.ANONYMOUS:
            return []
        known = [one for _, versions in sorted(self._projects[1].items()) for one in versions.values()]
        found = [EnvironmentRecord.of_project(one) for one in known if one.ref not in one.aliases]
        return [one for one in found if wanted.admits(one.name, one.description, one.tags)]

    # Changing

    async def release(self, ref: Ref, caller: Caller) -> None:
        def released(environment: EnvironmentRecord) -> EnvironmentRecord:
            if environment.status == RELEASED:
                raise Conflict(f"environment '{environment.ref}' is released already")
            return replace(environment, status=RELEASED, updated_at=timestamp())

        await self._change(ref, caller, "release", released)

    async def set_image(self, ref: Ref, image: str, caller: Caller) -> bool:
        """Whether it had another image before."""

        def changed(environment: EnvironmentRecord) -> EnvironmentRecord:
            new = environment.with_image(image)
            return new if new.differs_from(environment) else environment

        return await self._change(ref, caller, "image", changed)

    async def delete(self, ref: Ref, caller: Caller, *, force: bool) -> None:
        """Remove a version; a released one only by force of an administrator. Its name stays its owner's."""
        while True:
            document, environment = await self.owned(ref, caller)
            if environment.status == RELEASED and not (force and caller.is_admin):
                raise Conflict(f"environment '{ref}' is released; only an administrator deletes it, with force")
            with suppress(Stale):
                await self._store.write(
                    Delete(KIND, document.key, document.revision),
                    Delete(version_details.KIND, document.key),
                    audit.entry(caller, "delete", ref.name, ref.version, environment.digest),
                    *await self._uploads.unused(environment.digest),
                )
                return

    async def policy(self, name: str, caller: Caller) -> EnvironmentAccess:
        """Who has access; for those who may push, since it names people."""
        return EnvironmentAccess.of((await self._policy(name, caller)).value)

    async def set_policy(self, name: str, new: AccessPolicy, caller: Caller) -> EnvironmentAccess:
        """Change what is given. All versions follow at once: which lists they stand in depends on it."""
        given = new.model_dump(exclude_none=True)
        for key in {"readers", "writers"} & given.keys():
            given[key] = tuple(dict.fromkeys(given[key]))
        while True:
            document = await self._policy(name, caller)
            policy = EnvironmentAccess.of(document.value)
            if not caller.owns(policy.owner):
                raise Forbidden(f"only its owner or an administrator may change who has access to {name!r}")
            policy = replace(policy, **given)
            versions = [version async for version in self._versions(name)]
            with suppress(Stale):
                await self._store.write(
                    Put(POLICIES, name, policy.value(), document.revision),
                    audit.entry(caller, "access", name),
                    *(
                        replace(EnvironmentRecord.of(version), policy=policy).put(version.revision)
                        for version in versions
                    ),
                )
                return policy

    async def check_push(self, ref: Ref, caller: Caller) -> Document | None:
        """Refuse a caller who may not push this version, existing or not. The policy of its name, if any."""
        if not caller.role.includes(Role.USER):
            raise Forbidden(f"the role '{caller.role}' may not push")
        if self.is_folder(ref):
            raise Conflict(f"environment '{ref}' is a folder on the server; push another version")
        [document] = await self._store.get(POLICIES, ref.name)
        policy = EnvironmentAccess.of(document.value) if document else None
        if policy:
            policy.check_write(caller, ref.name)
        await self._refuse_reserved(ref.name, policy, caller)
        return document

    async def _refuse_reserved(self, name: str, policy: EnvironmentAccess | None, caller: Caller) -> None:
        """Forbidden for a name that no administrator has given to the caller.

        A name that was claimed before it was reserved stays its owner's, but for that of a built-in environment.
        """
        why = self._reserved.why(name)
        if why is None or caller.is_admin:
            return
        if policy and not self._reserved.is_built_in(name):
            return
        if policy is None or not await self._reserved.is_given_by(policy.owner):
            raise Forbidden(f"field 'name': {name!r} is reserved for administrators: {why}; choose another name")

    async def _counts(self, published: EnvironmentRecord, caller: Caller) -> bool:
        """Whether a published version goes before a built-in one of its name.

        Only if an administrator published it. Earlier versions of the hub let any account take such a name; what
        was published then is found by its owner alone.
        """
        if published.policy is None or not self._reserved.is_built_in(published.name):
            return True
        owner = published.policy.owner
        return owner == caller.user or await self._reserved.is_given_by(owner)

    async def owned(self, ref: Ref, caller: Caller) -> tuple[Document, EnvironmentRecord]:
        """A version that the caller may change. NotFound when they may not even see it."""
        if self.is_folder(ref):
            raise Conflict(f"environment '{ref}' is a folder on the server; change it there")
        [document] = await self._store.get(KIND, str(ref))
        environment = EnvironmentRecord.of(document) if document else None
        if document is None or environment is None or not _sees(environment, caller):
            raise NotFound(f"environment {str(ref)!r} not found; {await self._near(ref, caller)}")
        assert environment.policy
        environment.policy.check_write(caller, ref.name)
        return document, environment

    async def _change(
        self, ref: Ref, caller: Caller, action: str, change: Callable[[EnvironmentRecord], EnvironmentRecord]
    ) -> bool:
        while True:
            document, environment = await self.owned(ref, caller)
            new = change(environment)
            if new == environment:
                return False
            if environment.status == RELEASED:
                raise Conflict(f"environment '{ref}' is released and cannot change; push another version")
            entry = audit.entry(caller, action, ref.name, ref.version, new.digest)
            with suppress(Stale):
                await self._store.write(new.put(document.revision), entry)
                return True

    # Reading the store

    async def _policy(self, name: str, caller: Caller) -> Document:
        [document] = await self._store.get(POLICIES, name)
        if document is None or not EnvironmentAccess.of(document.value).is_seen_by(caller):
            raise NotFound(f"environment {name!r} not found; {await self._near(Ref(name), caller)}")
        EnvironmentAccess.of(document.value).check_write(caller, name)
        return document

    async def _published(self, ref: Ref) -> EnvironmentRecord | None:
        if ref.version:
            [document] = await self._store.get(KIND, str(ref))
            return EnvironmentRecord.of(document) if document else None
        best: Document | None = None
        # Newest first: the first release that fits is the one, and a pre-release only if no release fits.
        async for document in self._versions(ref.name):
            version = document.value["version"]
            if ref.pick([version]):
                best = best or document
                if not refs.Version(version).is_pre_release:
                    return EnvironmentRecord.of(document)
        return EnvironmentRecord.of(best) if best else None

    async def _matching(self, wanted: Filter, caller: Caller) -> AsyncIterator[EnvironmentRecord]:
        terms = lists_of(caller)
        if wanted.name:
            terms = [f"name={wanted.name}"]
        elif wanted.tags:
            terms = [f"tag={wanted.tags[0]}"]
        async for document in walk(self._store, KIND, *terms):
            value = document.value
            if wanted.admits(value["name"], value["description"], value["tags"]):
                environment = EnvironmentRecord.of(document)
                if _sees(environment, caller):
                    yield environment

    def _versions(self, name: str) -> AsyncIterator[Document]:
        """The published ones, newest first."""
        return walk(self._store, KIND, f"name={name}", reverse=True)

    async def _near(self, ref: Ref, caller: Caller) -> str:
        """What the caller may have meant, among what they may see."""
        found = [one async for one in self._matching(Filter(name=ref.name), caller)]
        if caller.role is not Role.ANONYMOUS:
            found += self._folders.get(ref.name, {}).values()
        if not found:
            page = await self._store.page(KIND, *lists_of(caller), limit=_NEAR_AMONG)
            seen = [EnvironmentRecord.of(document) for document in page.documents]
            if caller.role is not Role.ANONYMOUS:
                known = (*self._folders.values(), *self._built_in.values())
                seen += [one for versions in known for one in versions.values()]
            close = difflib.get_close_matches(ref.name, {one.name for one in seen}, cutoff=_SIMILAR)
            found = [one for one in seen if one.name in close]
        names = [str(one.ref) for one in sorted(found, key=lambda one: refs.Version(one.version), reverse=True)]
        return f"the hub has {', '.join(names[:_MAX_NEAR])}" if names else "the hub has nothing of a similar name"


def _sees(environment: EnvironmentRecord, caller: Caller) -> bool:
    if environment.policy is None:
        return caller.role is not Role.ANONYMOUS
    return environment.policy.is_seen_by(caller)


def _described(folders: Folders) -> dict[str, dict[str, EnvironmentRecord]]:
    return {
        name: {version: EnvironmentRecord.of_project(project) for version, project in versions.items()}
        for name, versions in folders.items()
    }


def _digest(project: Project) -> str:
    """Of the bundle that the folder would be: what runs can be told apart, although nothing was pushed."""
    with tempfile.TemporaryDirectory() as folder:
        return packing.pack(project.path, Path(folder) / "bundle").digest


def _read_folder(project: Project) -> VersionDetails:
    readme = next((path for name in _READMES if (path := project.path / name).is_file()), None)
    text = readme.read_text("utf-8", "replace") if readme else ""
    return VersionDetails(**vars(metadata.read_folder(project.path)), readme=text)
