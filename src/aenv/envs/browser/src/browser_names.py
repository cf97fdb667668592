"""Names of people and places that the site's content is made of; all invented."""

from __future__ import annotations

import random

FIRST = (
    *("Ada", "Boris", "Carla", "Dmitri", "Elif", "Farid", "Greta", "Hanna", "Ivo", "Jola", "Kenji", "Lena"),
    *("Mateo", "Nadia", "Oskar", "Priya", "Quinn", "Rosa", "Sven", "Tala", "Umar", "Vera", "Wanda", "Yusuf"),
)
LAST = (
    *("Abara", "Brandt", "Castell", "Dorn", "Eklund", "Fontana", "Grau", "Holm", "Ilves", "Jansen", "Kovar"),
    *("Lindqvist", "Moreau", "Novak", "Okafor", "Pires", "Quist", "Rossi", "Sato", "Tamm", "Urban", "Vidal"),
)
TOWNS = ("Ashby", "Birchwell", "Corran", "Dunmere", "Eastholm", "Fenwick", "Glenrow", "Harrowgate")


def person(chance: random.Random) -> str:
    """A first and a last name."""
    return f"{chance.choice(FIRST)} {chance.choice(LAST)}"


def people(chance: random.Random, count: int) -> list[str]:
    """So many different ones."""
    return chance.sample([f"{first} {last}" for first in FIRST for last in LAST], count)


def phone(chance: random.Random) -> str:
    """A number that no person has."""
    return f"555-{chance.randrange(10_000):04d}"


def email(name: str) -> str:
    """An address of that person."""
    return f"{name.lower().replace(' ', '.')}@mail.test"
