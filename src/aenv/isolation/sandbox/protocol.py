"""The boot protocol: every message between the processes that start an instance, for both ends.

    engine ⇄ stager      the launcher and the stager run our code alone, and are believed
    stager ⇄ zygote      the zygote has loaded the author's code: what it says is checked like network input
    engine ⇄ instance    so is what an instance says: `ready`

A message is one frozen dataclass, in one packet (`typed_json.py`). `decode` takes only the kinds that its caller
expects now, with exactly their fields, of exactly their types, within MAX_BYTES.

Not here: what the launcher and the programs that it starts are told first (`orders.py`).
"""

# No postponed annotations here: `decode` reads the types of the fields.

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .orders import NotStarted as NotStarted
from .typed_json import MAX_BYTES as MAX_BYTES
from .typed_json import MAX_ERROR as MAX_ERROR
from .typed_json import Broken as Broken
from .typed_json import decode as decode
from .typed_json import encode as encode

MAX_READY_BYTES = 4 << 20
_MAX_DEPTH = 64
_MAX_TOOLS = 4096
_BIGGEST = 1 << 63
_MAKE = struct.Struct("!Q")
_ENTER = struct.Struct("!Q?")
_LENGTH = struct.Struct("!I")
_DECODER = json.JSONDecoder()


# Launcher and stager → engine


@dataclass(frozen=True)
class Launched:
    """The namespaces are made. Comes with a pidfd of the zygote, which waits for `Go`."""

    owner: int
    """The id on the host of the user who is root inside."""


@dataclass(frozen=True)
class Started:
    """Forks can be asked for."""

    is_loaded: bool
    """Whether the environment is loaded already; else each instance loads it."""


@dataclass(frozen=True)
class Prepared:
    """An instance is forked, and waits for "go" on its channel. Comes with its pidfd, its log, its listeners."""

    number: int
    listeners: tuple[str, ...]


@dataclass(frozen=True)
class NotForked:
    """The instance cannot be made: the stager says so, or the zygote has said so."""

    number: int
    error: str
    code: int = 0
    """The errno of the kernel's refusal; 0 where it was something else."""


@dataclass(frozen=True)
class Ended:
    """The first process of an instance has ended; `status` as wait(2) tells. In the zygote's words: it is believed
    in how an end is described, and in nothing else."""

    number: int
    status: int


# Engine → stager


@dataclass(frozen=True)
class Go:
    """The zygote is in its control group, and may load the author's code."""


@dataclass(frozen=True)
class Keep:
    """The instance is written down. One that is not ends when the engine is gone."""

    number: int


@dataclass(frozen=True)
class NamespaceShape:
    """What must be known to build an instance's namespaces and to confine it, before it is asked for."""

    storage_bytes: int
    inodes: int
    original: str
    """Where the unchanged root is shown once more; nowhere when empty."""
    egress_port: int
    """Where programs inside find a proxy; 0 for none."""
    sidecar_socket: str
    """Where the main part of an instance finds its sidecar; empty for none."""
    open_files: int
    keep_history: bool


@dataclass(frozen=True)
class ForkRequest(NamespaceShape):
    """Make an instance. Comes with its end of the channel."""

    number: int

    @property
    def shape(self) -> NamespaceShape:
        return NamespaceShape(
            *(self.storage_bytes, self.inodes, self.original, self.egress_port, self.sidecar_socket),
            *(self.open_files, self.keep_history),
        )


# Zygote ⇄ stager


@dataclass(frozen=True)
class Loaded:
    """Zygote → stager: the author's code is loaded, or left to the instances."""

    is_loaded: bool


@dataclass(frozen=True)
class NotLoaded:
    """Zygote → stager: a module that should be loaded ahead cannot be."""

    error: str


@dataclass(frozen=True)
class Waiting:
    """The child of the zygote that forks → stager, once; and each process that it forks, once, on its line."""


@dataclass(frozen=True)
class Make:
    """Stager → the child that forks: the first process of a new pid namespace. Comes with that process's line.

    Not JSON, like `Enter`: each page that its reader touches is copied for the next fork.
    """

    number: int

    def packed(self) -> bytes:
        return _MAKE.pack(self.number)

    @classmethod
    def unpacked(cls, packet: bytes) -> "Make":
        return cls(*_MAKE.unpack(packet))


@dataclass(frozen=True)
class Enter:
    """Stager → a process that waits: enter your room, and be confined. Comes with its log and namespaces, as in
    `system.ROOM_NAMESPACES`. The channel comes next, as soon as an instance is asked for: see JOIN."""

    open_files: int
    keep_history: bool

    def packed(self) -> bytes:
        return _ENTER.pack(self.open_files, self.keep_history)

    @classmethod
    def unpacked(cls, packet: bytes) -> "Enter":
        return cls(*_ENTER.unpack(packet))


WAITING = encode(Waiting())
JOIN = b"+"
"""Stager → a process that is in its room: be the instance whose channel this comes with."""


# Engine → instance

GO = b"go"
"""It is in its control groups, and its assignment follows."""
BE_SPARE = b"be"
"""The same, but that it will be assigned later."""


@dataclass(frozen=True)
class Assignment:
    """What a spare instance becomes. Comes with the listener on which it serves, after its length in bytes."""

    variables: Mapping[str, str]
    folder: str
    """Where it works."""
    arguments: tuple[str, ...]
    confirm: bool
    """Whether it is to say once more, when it serves, that it is ready."""
    rehearse: bool
    """Whether it has time, before the first call comes, to do what a call does."""

    def packed(self) -> bytes:
        """Its variables as JSON, after their length, and the rest as JSON."""
        variables = json.dumps(dict(self.variables)).encode()
        rest = json.dumps((self.folder, self.arguments, self.confirm, self.rehearse)).encode()
        return _LENGTH.pack(len(variables)) + variables + rest

    @classmethod
    def believed(cls, packet: bytes) -> "tuple[Assignment, bytes]":
        """The message, and its variables as JSON.

        Unchecked: the engine is believed, and a check is code that each instance runs first.
        """
        end = _LENGTH.size + _LENGTH.unpack_from(packet)[0]
        variables = packet[_LENGTH.size : end]
        folder, arguments, confirm, rehearse = _decoded(packet[end:])
        return cls(_decoded(variables), folder, tuple(arguments), confirm, rehearse), variables


# What an instance says


@dataclass(frozen=True)
class Ready:
    """The environment is loaded, and offers this. Each has a name; those of a zygote tell their tools alone."""

    tools: list[dict[str, Any]]
    functions: list[dict[str, Any]] = field(default_factory=list)
    rewards: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class NotReady:
    """The environment cannot be loaded."""

    error: str


def _decoded(text: bytes) -> Any:
    return _DECODER.raw_decode(text.decode())[0]


def ready(line: bytes) -> Ready | NotReady:
    """What a runtime says of itself, once it can. Broken when it is not that.

    What comes out can be stored and shown: every number is finite, all text is Unicode, nothing is nested deeper
    than is ever needed.
    """
    if len(line) > MAX_READY_BYTES:
        raise Broken(f"its ready line is longer than {MAX_READY_BYTES >> 20} MiB")
    try:
        said = json.loads(line)
        _check_depth(said)
        json.dumps(said, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise Broken(f"its ready line cannot be read: {str(error)[:200]}") from None
    match said:
        case {"ready": True, "tools": list(tools)}:
            return Ready(
                _named("tool", tools),
                _named("function", said.get("functions", [])),
                _named("reward", said.get("rewards", [])),
            )
        case {"ready": False, "error": str(why)}:
            return NotReady(why)
    raise Broken("its ready line says neither 'ready' with tools nor an error")


def _named(kind: str, offers: Any) -> list[dict[str, Any]]:
    if not isinstance(offers, list) or len(offers) > _MAX_TOOLS:
        raise Broken(f"its ready line has more than {_MAX_TOOLS} {kind}s")
    if not all(isinstance(each, dict) and isinstance(each.get("name"), str) for each in offers):
        raise Broken(f"its ready line has a {kind} without a name")
    return offers


def _check_depth(value: Any) -> None:
    waiting: list[tuple[Any, int]] = [([value], 0)]  # it may be a number alone
    while waiting:
        container, depth = waiting.pop()
        if depth > _MAX_DEPTH:
            raise ValueError(f"nested deeper than {_MAX_DEPTH}")
        for one in container.values() if isinstance(container, dict) else container:
            if isinstance(one, dict | list):
                waiting.append((one, depth + 1))
            elif type(one) is int and not -_BIGGEST <= one < _BIGGEST:
                raise ValueError("a number has more than 64 bits")
