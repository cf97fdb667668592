"""Tools whose schemas, results and ends are difficult for a framework; `received` tells what arrived."""

import asyncio
import base64
import enum
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from aenv import Depends, Image, register_function, register_tool

# A PNG of one pixel.
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@dataclass
class Calls:
    """What has arrived, and how the call that waits goes on."""

    received: list[dict[str, Any]] = field(default_factory=list)
    waiting: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)


Log = Annotated[Calls, Depends(Calls)]


class Colour(enum.Enum):
    """A colour."""

    RED = "red"
    GREEN = "green"


class Address(BaseModel):
    """Where somebody lives."""

    street: str
    number: int = Field(default=1, ge=1)


class Person(BaseModel):
    """Somebody with addresses."""

    name: str = Field(description="The whole name.")
    address: Address
    earlier: list[Address] = []


class Point(BaseModel):
    """A point of a plane."""

    x: float
    y: float
    label: str | None = None


class Cat(BaseModel):
    """A pet."""

    kind: Literal["cat"]
    lives: int = 9


class Dog(BaseModel):
    """Another pet."""

    kind: Literal["dog"]
    bark: str


def _kept(log: Calls, tool: str, **arguments: Any) -> str:
    log.received.append({"tool": tool, "arguments": arguments})
    return f"{tool} ok"


@register_tool
def union(value: int | str | list[int] | None, log: Log) -> str:
    """Take one of several types.

    Args:
        value: A number, a text, numbers, or nothing.
    """
    return _kept(log, "union", value=value)


@register_tool
def nested(person: Person, log: Log) -> str:
    """Take models in models."""
    return _kept(log, "nested", person=person.model_dump())


@register_tool
def defaults(
    log: Log,
    text: str = "a\nb",
    count: int = 3,
    ratio: float = 0.5,
    flag: bool = True,
    tags: list[str] | None = None,
) -> str:
    """Take what has a default."""
    return _kept(log, "defaults", text=text, count=count, ratio=ratio, flag=flag, tags=tags)


@register_tool
def enums(colour: Colour, log: Log, level: Literal["low", "high"] = "low") -> str:
    """Take one of a few values."""
    return _kept(log, "enums", colour=colour.value, level=level)


@register_tool
def objects(points: list[Point], extra: dict[str, Any], log: Log) -> str:
    """Take an array of objects, and an object of any keys."""
    return _kept(log, "objects", points=[point.model_dump() for point in points], extra=extra)


@register_tool
def variants(pet: Annotated[Cat | Dog, Field(discriminator="kind")], pair: tuple[int, str], log: Log) -> str:
    """Take one of several models, told apart by a field, and a pair."""
    return _kept(log, "variants", pet=pet.model_dump(), pair=list(pair))


@register_tool
def nothing(log: Log) -> str:
    """Take no arguments."""
    return _kept(log, "nothing")


@register_tool
def unicode(größe: str, log: Log) -> dict[str, str]:
    """Grüße in 日本語 und 🙂.

    Args:
        größe: Ein Text mit Umlauten: äöü.
    """
    _kept(log, "unicode", größe=größe)
    return {"größe": größe}


@register_tool
def fail() -> str:
    """Raise."""
    raise ValueError("the door is locked")


@register_tool
def picture() -> list[Any]:
    """Give an image, and a text beside it."""
    return ["a pixel", Image(PIXEL)]


@register_tool
def drawing() -> list[Any]:
    """Give an image of a kind that not everything can show."""
    return ["a circle", Image(b"<svg xmlns='http://www.w3.org/2000/svg'/>", mime_type="image/svg+xml")]


@register_tool
async def wait(log: Log) -> str:
    """Never answer."""
    log.waiting.set()
    try:
        await asyncio.Event().wait()
    finally:
        log.cancelled.set()
    return ""


@register_function
def received(log: Log) -> list[dict[str, Any]]:
    """The calls that arrived, in order."""
    return log.received


@register_function
async def until_waiting(log: Log) -> bool:
    """Return when the tool `wait` has begun."""
    return await log.waiting.wait()


@register_function
async def until_cancelled(log: Log) -> bool:
    """Return when the tool `wait` was cancelled."""
    return await log.cancelled.wait()
