"""Puzzles: problems with a shape of their own, four and more for each difficulty.

Each gives its text and the calculations that solve it, the last of which gives the answer.
"""

from __future__ import annotations

from collections.abc import Sequence

from gsm_tools_draws import Draws
from gsm_tools_stories import NAMES

Told = tuple[str, Sequence[str]]

_WARES = (
    *(("notebook", "notebooks"), ("pencil", "pencils"), ("lantern", "lanterns"), ("cushion", "cushions")),
    *(("teacup", "teacups"), ("candle", "candles"), ("scarf", "scarves"), ("kite", "kites"), ("mug", "mugs")),
)
_VEHICLES = ("train", "tram", "coach", "bus", "van", "lorry")


def total_of_two(draws: Draws, level: int) -> Told:
    (one, two), (_, wares) = draws.two(NAMES), draws.pick(_WARES)
    a, b = draws.between(11, 89), draws.between(11, 89)
    return f"{one} has {a} {wares} and {two} has {b}. How many {wares} do they have together?", [f"{a} + {b}"]


def difference(draws: Draws, level: int) -> Told:
    (one, two), (_, wares) = draws.two(NAMES), draws.pick(_WARES)
    b = draws.between(11, 60)
    a = b + draws.between(3, 38)
    return f"{one} sold {a} {wares}, {two} sold {b}. How many more did {one} sell than {two}?", [f"{a} - {b}"]


def boxes(draws: Draws, level: int) -> Told:
    _, wares = draws.pick(_WARES)
    a, b = draws.between(3, 12), draws.between(4, 24)
    return f"A shelf has {a} boxes, and in each box are {b} {wares}. How many {wares} are that?", [f"{a} * {b}"]


def equal_shares(draws: Draws, level: int) -> Told:
    _, wares = draws.pick(_WARES)
    b, each = draws.between(3, 12), draws.between(3, 20)
    text = f"{b * each} {wares} are handed out to {b} guests, to each the same number. How many does a guest get?"
    return text, [f"{b * each} / {b}"]


def change(draws: Draws, level: int) -> Told:
    name, (ware, wares) = draws.pick(NAMES), draws.pick(_WARES)
    count, price = draws.between(2, 9), draws.between(2, 12)
    paid = (count * price // 50 + 1) * 50
    text = f"A {ware} costs {price} euros. {name} buys {count} {wares} and pays with {paid} euros. How many euros "
    return f"{text}does {name} get back?", [f"{count} * {price}", f"{paid} - {count * price}"]


def fence(draws: Draws, level: int) -> Told:
    name, a, b = draws.pick(NAMES), draws.between(6, 40), draws.between(5, 35)
    text = (
        f"The garden of {name} is a rectangle, {a} metres long and {b} metres wide. How many metres of fence go "
    )
    return f"{text}all the way around it?", [f"{a} + {b}", f"2 * {a + b}"]


def two_kinds_of_packs(draws: Draws, level: int) -> Told:
    name, (_, wares) = draws.pick(NAMES), draws.pick(_WARES)
    a, b, n = draws.between(2, 8), draws.between(3, 12), draws.between(5, 30)
    text = f"{name} opens {a} packs of {b} {wares} each, and finds {n} single {wares} in a drawer. "
    return f"{text}How many {wares} are that in all?", [f"{a} * {b}", f"{a * b} + {n}"]


def pages(draws: Draws, level: int) -> Told:
    name, days, each = draws.pick(NAMES), draws.between(3, 9), draws.between(8, 30)
    total = days * each + draws.between(10, 120)
    text = f"A book has {total} pages. {name} reads {each} pages on each of {days} days. How many pages remain?"
    return text, [f"{days} * {each}", f"{total} - {days * each}"]


def average(draws: Draws, level: int) -> Told:
    name, mean = draws.pick(NAMES), draws.between(20, 70)
    a, b = mean - draws.between(1, 15), mean + draws.between(1, 15)
    c = 3 * mean - a - b
    text = f"On three days {name} walks {a}, {b} and {c} minutes. How many minutes is that a day, on average?"
    return text, [f"{a} + {b}", f"{a + b} + {c}", f"{3 * mean} / 3"]


def two_legs(draws: Draws, level: int) -> Told:
    vehicle = draws.pick(_VEHICLES)
    v, t, w, u = draws.between(4, 12) * 10, draws.between(2, 5), draws.between(3, 9) * 10, draws.between(2, 4)
    text = (
        f"A {vehicle} travels {t} hours at {v} kilometres an hour, and then {u} hours at {w} kilometres an hour. "
    )
    steps = [f"{t} * {v}", f"{u} * {w}", f"{t * v} + {u * w}"]
    return f"{text}How many kilometres does it travel in all?", steps


def ratio(draws: Draws, level: int) -> Told:
    (one, two), (_, wares) = draws.two(NAMES), draws.pick(_WARES)
    a, b = draws.two((2, 3, 5, 7))
    each = draws.between(4, 25)
    text = f"{one} and {two} share {(a + b) * each} {wares} in the ratio {a} to {b}, in this order. How many does "
    return f"{text}{one} get?", [f"{a} + {b}", f"{(a + b) * each} / {a + b}", f"{each} * {a}"]


def ages(draws: Draws, level: int) -> Told:
    one, two = draws.two(NAMES)
    young, times, years = draws.between(4, 12), draws.between(2, 5), draws.between(3, 15)
    text = (
        f"{two} is {young} years old, and {one} is {times} times as old. How old will they be together in {years} "
    )
    steps = [f"{young} * {times}", f"{young} + {young * times}", f"{young + young * times} + 2 * {years}"]
    return f"{text}years?", steps


def discount(draws: Draws, level: int) -> Told:
    name, (ware, wares) = draws.pick(NAMES), draws.pick(_WARES)
    count, price, off = draws.between(3, 9), 20 * draws.between(1, 6), draws.pick((5, 10, 15, 20, 25, 40))
    ship = draws.between(4, 15)
    whole = count * price
    cut = whole * off // 100  # a multiple of 20 has whole twentieths
    text = (
        f"A {ware} costs {price} euros. {name} orders {count} {wares} with a discount of {off} percent on all of "
    )
    text += f"them, and pays {ship} euros for shipping, which has no discount. How many euros does {name} pay?"
    return text, [f"{count} * {price}", f"{whole} * {off} / 100", f"{whole} - {cut}", f"{whole - cut} + {ship}"]


def pump(draws: Draws, level: int) -> Told:
    a, b, hours = draws.between(6, 20), draws.between(3, 15), draws.between(4, 12)
    leak = draws.between(2, 5)
    total = (a + b - leak) * hours
    text = f"Two pumps fill a pool of {total} cubic metres. The first brings {a} cubic metres an hour, the second "
    text += f"{b}; at the same time {leak} cubic metres an hour leak away. After how many hours is the empty "
    text += "pool full?"
    return text, [f"{a} + {b}", f"{a + b} - {leak}", f"{total} / {a + b - leak}"]


def mixture(draws: Draws, level: int) -> Told:
    name = draws.pick(NAMES)
    a, b = 10 * draws.between(1, 6), 10 * draws.between(1, 6)
    p, q = draws.two((10, 20, 30, 40, 50))
    text = (
        f"{name} mixes {a} litres of juice that is {p} percent syrup with {b} litres that are {q} percent syrup. "
    )
    steps = [f"{a} * {p} / 100", f"{b} * {q} / 100", f"{a * p // 100} + {b * q // 100}"]
    return f"{text}How many litres of syrup are in the mixture?", steps


def wages(draws: Draws, level: int) -> Told:
    name, rate, hours = draws.pick(NAMES), 2 * draws.between(6, 15), draws.between(30, 40)
    over, tax = draws.between(2, 8), draws.between(20, 90)
    extra = rate * 3 // 2
    gross = rate * hours + extra * over
    text = f"{name} earns {rate} euros an hour for {hours} hours, and one and a half times as much for each of "
    text += f"{over} further hours. {tax} euros are taken off for insurance. How many euros are paid out?"
    steps = [f"{rate} * {hours}", f"{rate} * 3 / 2", f"{extra} * {over}", f"{rate * hours} + {extra * over}"]
    return text, [*steps, f"{gross} - {tax}"]


def meeting(draws: Draws, level: int) -> Told:
    one, two = draws.two(_VEHICLES)
    v, w, hours = draws.between(40, 90), draws.between(40, 90), draws.between(2, 5)
    head = draws.between(5, 30)
    gap = (v + w) * hours + head
    text = f"A {one} and a {two} start towards each other from towns {gap} kilometres apart, after the {one} has "
    text += f"already covered {head} of these kilometres. From then on the {one} goes {v} and the {two} {w} "
    text += f"kilometres an hour. How many kilometres has the {two} travelled when they meet?"
    steps = [f"{gap} - {head}", f"{v} + {w}", f"{gap - head} / {v + w}", f"{hours} * {w}"]
    return text, steps


def cents(draws: Draws, level: int) -> Told:
    name, (ware, wares) = draws.pick(NAMES), draws.pick(_WARES)
    count, euros, part = draws.between(3, 12), draws.between(1, 9), draws.pick((5, 15, 35, 45, 65, 85, 95))
    price, tip, people = f"{euros}.{part:02}", draws.between(1, 6), draws.pick((2, 4, 5, 10))
    text = f"A {ware} costs {price} euros. {name} and friends buy {count} {wares} and give {tip} euros as a tip. "
    text += f"The {people} of them share the bill equally. How many euros does each pay, exactly?"
    return text, [f"{count} * {price}", f"{count} * {price} + {tip}", f"({count} * {price} + {tip}) / {people}"]


def backwards(draws: Draws, level: int) -> Told:
    name, start = draws.pick(NAMES), 2 * draws.between(8, 60)
    found, gift = draws.between(5, 30), draws.between(4, 25)
    half = start // 2
    now = (half + found) * 3 - gift
    text = (
        f"{name} thinks of a number, halves it, adds {found}, multiplies the sum by 3 and takes {gift} away. The "
    )
    text += f"result is {now}. What was the number?"
    return text, [f"{now} + {gift}", f"{now + gift} / 3", f"{half + found} - {found}", f"{half} * 2"]


def recipe(draws: Draws, level: int) -> Told:
    name, people, guests = draws.pick(NAMES), draws.pick((4, 6, 8)), draws.between(9, 30)
    grams, bag = people * draws.between(10, 40) * 5, draws.pick((250, 500, 1000))
    text = f"A recipe for {people} people takes {grams} grams of flour. {name} cooks for {guests} people and buys "
    text += (
        f"flour in bags of {bag} grams. How many grams of flour are left over when as few bags as possible are "
    )
    text += "bought?"
    need = grams // people * guests
    bags = -(-need // bag)
    return text, [
        f"{grams} / {people}",
        f"{grams // people} * {guests}",
        f"ceil({need} / {bag})",
        f"{bags} * {bag} - {need}",
    ]


PUZZLES = {
    1: (total_of_two, difference, boxes, equal_shares),
    2: (change, fence, two_kinds_of_packs, pages),
    3: (average, two_legs, ratio, ages),
    4: (discount, pump, mixture, ages, two_legs),
    5: (wages, meeting, cents, backwards, recipe),
}
