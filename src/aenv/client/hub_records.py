"""What a hub says of environments, read once: each shape has one parser, `of`.

Read leniently, since other hubs store what they are sent: a value of another type counts as none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from ..base.errors import NetworkError

Sent = Mapping[str, Any]


class HubRecord:
    """A record of a hub: its fields have the names that the record has."""

    @classmethod
    def of(cls, sent: Any) -> Self:
        return cls(**cls._read(_object(sent)))

    @classmethod
    def _read(cls, record: Sent) -> dict[str, Any]:
        """The fields of a plain type; `sent` is the record as the hub sent it, for those who show all of it."""
        plain = [each for each in fields(cls) if each.type in _READERS]  # type: ignore[arg-type]
        return {
            each.name: record if each.name == "sent" else _READERS[str(each.type)](record.get(each.name))
            for each in plain
        }


@dataclass(frozen=True)
class HubOffer(HubRecord):
    """A tool, function or reward of an environment."""

    kind: str
    name: str
    description: str


@dataclass(frozen=True)
class HubVersion(HubRecord):
    """A version of an environment. What the hub did not say is empty."""

    name: str
    version: str
    status: int | str = ""
    digest: str = ""
    """Of its bundle; empty for one without, such as a folder that a gateway serves."""
    code_digest: str = ""
    size_bytes: int = 0
    description: str = ""
    owner: str = ""
    access: str = ""
    pushed_by: str = ""
    code_url: str = ""
    readme: str = ""
    created_at: str = ""
    updated_at: str = ""
    tags: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    builtin: bool = False
    artifacts: tuple[tuple[str, str], ...] = ()
    """Type and content."""
    dependencies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    offers: tuple[HubOffer, ...] = ()
    changes: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    """Names by what was done to them ("added"), by what they name ("tools")."""
    deploy_config: Sent = field(default_factory=dict)
    sent: Sent = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, sent: Any, name: str = "") -> Self:
        """`name` where the record stands below the environment's."""
        record = _object(sent)
        plain = cls._read(record)
        plain["name"] = plain["name"] or name
        if not plain["name"] or not plain["version"]:
            raise NetworkError("the hub sent an environment without a name or a version")
        status = record.get("status")
        return cls(
            **plain,
            status=status if isinstance(status, int | str) else "",
            artifacts=tuple(
                (_text(each.get("type")) or "artifact", _text(each.get("content")))
                for each in _objects(record.get("artifacts"))
            ),
            dependencies={kind: _texts(names) for kind, names in _object(record.get("dependencies")).items()},
            offers=tuple(
                HubOffer.of({**each, "kind": kind})
                for kind in ("tool", "function", "reward")
                for each in _objects(record.get(f"{kind}s"))
            ),
            changes={
                what: {done: _texts(names) for done, names in _object(change).items()}
                for what, change in _object(record.get("changes")).items()
            },
        )


@dataclass(frozen=True)
class HubHistory:
    """An environment as a whole: its versions, newest first."""

    versions: tuple[HubVersion, ...]
    sent: Sent = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, sent: Any, name: str) -> HubHistory:
        record = _object(sent)
        return cls(tuple(HubVersion.of(each, name) for each in _objects(record.get("versions"))), record)


@dataclass(frozen=True)
class HubRuntime(HubRecord):
    """What instances of an environment get on a server, in words; empty where the server does not know."""

    root: str = ""
    python: str = ""
    note: str = ""
    """Why that is not the Python that the environment asks for."""


@dataclass(frozen=True)
class HubUser(HubRecord):
    """Who the hub takes us for."""

    user: str
    role: str


@dataclass(frozen=True)
class HubAccess(HubRecord):
    """Who may see an environment, and push to it. `owner` is empty for a folder of the server's."""

    owner: str
    access: str
    readers: tuple[str, ...] = ()
    writers: tuple[str, ...] = ()


@dataclass(frozen=True)
class HubUpload(HubRecord):
    """How much of a bundle the hub has: what comes before `offset`, or all of it."""

    offset: int
    exists: bool = False
    """Said in reply to an announcement."""
    complete: bool = False
    """Said in reply to a part."""


@dataclass(frozen=True)
class HubChange(HubRecord):
    """A line of the audit log."""

    at: str
    user: str
    action: str
    environment: str
    digest: str
    sent: Sent = field(default_factory=dict, repr=False)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(str(each) for each in value) if isinstance(value, list | tuple) else ()


def _object(value: Any) -> Sent:
    return value if isinstance(value, dict) else {}


def _objects(value: Any) -> Iterable[Sent]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "str": _text,
    "tuple[str, ...]": _texts,
    "int": lambda value: value if isinstance(value, int) else 0,
    "bool": lambda value: value is True,
    "Sent": _object,
}
