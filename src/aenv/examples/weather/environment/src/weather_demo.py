"""Look up the weather of a city, and pack for it."""

from dataclasses import dataclass, field
from typing import Annotated, Any

from aenv import Depends, ToolError, register_function, register_reward, register_tool

WEATHER = {"Bergen": ("rain", 9), "Cairo": ("sun", 34), "Tromsø": ("snow", -6)}
NEEDED = {"rain": "umbrella", "sun": "hat", "snow": "gloves"}


@dataclass
class Suitcase:
    """What the agent has packed."""

    things: list[str] = field(default_factory=list)


CurrentSuitcase = Annotated[Suitcase, Depends(Suitcase)]


@register_tool
def get_weather(city: str) -> dict[str, Any]:
    """The weather of a city.

    Args:
        city: Its name.
    """
    if city not in WEATHER:
        raise ToolError(f"no weather for {city!r}; there is some for {', '.join(WEATHER)}")
    sky, celsius = WEATHER[city]
    return {"city": city, "sky": sky, "celsius": celsius}


@register_tool
def pack(thing: str, suitcase: CurrentSuitcase) -> list[str]:
    """Put a thing into the suitcase; gives all that is in it.

    Args:
        thing: umbrella, hat or gloves.
    """
    suitcase.things.append(thing)
    return suitcase.things


@register_function
def get_task() -> dict[str, Any]:
    """What is to be done."""
    return {"id": "bergen", "instruction": "Pack what is needed in Bergen, and nothing else.", "max_steps": 5}


@register_reward
def packed_well(suitcase: CurrentSuitcase) -> dict[str, Any]:
    """1.0 for exactly what the weather of Bergen asks for."""
    return {"reward": float(suitcase.things == [NEEDED[WEATHER["Bergen"][0]]])}
