"""What a hub says of environments, read once: each shape has one parser, `of`.

Read leniently, since other hubs store what they are sent: a value of another type counts as none.
`sent` is the record as the hub sent it, for those who show all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..base.errors import NetworkError

Sent = Mapping[str, Any]


@dataclass(frozen=True)
class HubOffer:
    """A tool, function or reward of an environment."""

    kind: str
    name: str
    description: str


@dataclass(frozen=True)
class HubVersion:
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
    def of(cls, sent: Any, name: str = "") -> HubVersion:
        """`name` where the record stands below the environment's."""
        record = _object(sent)
        texts = {key: _text(record.get(key)) for key in _TEXTS}
        if not (texts["name"] or name) or not texts["version"]:
            raise NetworkError("the hub sent an environment without a name or a version")
        texts["name"] = texts["name"] or name
        status, size = record.get("status"), record.get("size_bytes")
        return cls(
            **texts,
            status=status if isinstance(status, int | str) else "",
            size_bytes=size if isinstance(size, int) else 0,
            tags=_texts(record.get("tags")),
            aliases=_texts(record.get("aliases")),
            builtin=record.get("builtin") is True,
            artifacts=tuple(
                (_text(each.get("type")) or "artifact", _text(each.get("content")))
                for each in _objects(record.get("artifacts"))
            ),
            dependencies={kind: _texts(names) for kind, names in _object(record.get("dependencies")).items()},
            offers=tuple(
                HubOffer(kind, _text(each.get("name")), _text(each.get("description")))
                for kind in ("tool", "function", "reward")
                for each in _objects(record.get(f"{kind}s"))
            ),
            changes={
                what: {done: _texts(names) for done, names in _object(change).items()}
                for what, change in _object(record.get("changes")).items()
            },
            deploy_config=_object(record.get("deploy_config")),
            sent=record,
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
class HubRuntime:
    """What instances of an environment get on a server, in words; empty where the server does not know."""

    root: str = ""
    python: str = ""
    note: str = ""
    """Why that is not the Python that the environment asks for."""

    @classmethod
    def of(cls, sent: Any) -> HubRuntime:
        record = _object(sent)
        return cls(*(_text(record.get(key)) for key in ("root", "python", "note")))


@dataclass(frozen=True)
class HubUser:
    """Who the hub takes us for."""

    user: str
    role: str

    @classmethod
    def of(cls, sent: Any) -> HubUser:
        record = _object(sent)
        return cls(_text(record.get("user")), _text(record.get("role")))


@dataclass(frozen=True)
class HubAccess:
    """Who may see an environment, and push to it. `owner` is empty for a folder of the server's."""

    owner: str
    access: str
    readers: tuple[str, ...] = ()
    writers: tuple[str, ...] = ()

    @classmethod
    def of(cls, sent: Any) -> HubAccess:
        record = _object(sent)
        lists = (_texts(record.get(kind)) for kind in ("readers", "writers"))
        return cls(_text(record.get("owner")), _text(record.get("access")), *lists)


@dataclass(frozen=True)
class HubChange:
    """A line of the audit log."""

    at: str
    user: str
    action: str
    environment: str
    digest: str
    sent: Sent = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, sent: Any) -> HubChange:
        record = _object(sent)
        words = {key: _text(record.get(key)) for key in ("at", "user", "action", "environment", "digest")}
        return cls(**words, sent=record)


_TEXTS = (
    *("name", "version", "digest", "code_digest", "description", "owner", "access", "pushed_by", "code_url"),
    *("readme", "created_at", "updated_at"),
)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(str(each) for each in value) if isinstance(value, list | tuple) else ()


def _object(value: Any) -> Sent:
    return value if isinstance(value, dict) else {}


def _objects(value: Any) -> Iterable[Sent]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
