"""The words of the stories: in each one quantity, and what may happen to it.

`{name}` is who it is about, `{n}` a number, `{part}` words such as "two thirds".
"""

from __future__ import annotations

from typing import TypedDict

NAMES = (
    *("Ada", "Bruno", "Chiara", "Dmitri", "Elif", "Farid", "Greta", "Hugo", "Ines", "Jonas", "Keiko", "Luca"),
    *("Mina", "Nils", "Odile", "Pavel", "Quentin", "Rosa", "Samir", "Tara", "Uma", "Viktor", "Wanda", "Yusuf"),
)
FRACTIONS = (
    *((1, 2, "half"), (1, 3, "one third"), (2, 3, "two thirds"), (1, 4, "one quarter"), (3, 4, "three quarters")),
    *(
        (1, 5, "one fifth"),
        (2, 5, "two fifths"),
        (3, 5, "three fifths"),
        (1, 6, "one sixth"),
        (5, 6, "five sixths"),
    ),
)


class Story(TypedDict):
    """Sentences for each kind of event; one of each is told."""

    opening: tuple[str, ...]
    gain: tuple[str, ...]
    lose: tuple[str, ...]
    grow: tuple[str, ...]
    share: tuple[str, ...]
    part: tuple[str, ...]
    percent: tuple[str, ...]
    rise: tuple[str, ...]
    question: str


STORIES: tuple[Story, ...] = (
    {
        "opening": (
            "{name} sets up a fruit stall with {n} apples.",
            "There are {n} apples on the cart that {name} pushes to the market.",
        ),
        "gain": ("A neighbour brings {n} more apples.", "{name} picks another {n} apples before noon."),
        "lose": ("{name} sells {n} apples.", "A school class buys {n} of the apples."),
        "grow": ("Then a lorry arrives, and {name} has {n} times as many apples as before.",),
        "share": (
            "{name} packs the apples into {n} crates with the same number in each, and keeps only one crate.",
        ),
        "part": (
            "In the afternoon {part} of the apples are sold.",
            "{name} gives {part} of the apples to the kitchen of the hospital.",
        ),
        "percent": ("It turns out that {n} percent of the apples are bruised, and those are thrown away.",),
        "rise": ("A late delivery makes the number of apples {n} percent larger.",),
        "question": "How many apples does {name} have now?",
    },
    {
        "opening": (
            "The village library that {name} looks after owns {n} novels.",
            "{name} opens a reading room with {n} novels on the shelves.",
        ),
        "gain": ("A retired teacher donates {n} novels.", "{name} buys {n} new novels at a fair."),
        "lose": ("{n} novels are lent out.", "A flood in the cellar ruins {n} novels."),
        "grow": ("After a merger with another library there are {n} times as many novels.",),
        "share": (
            "The novels are divided evenly among {n} branches, and {name} counts those of one branch only.",
        ),
        "part": (
            "Over the summer {part} of the novels there are lent out.",
            "{name} sends {part} of the novels to be rebound.",
        ),
        "percent": ("{name} sorts out {n} percent of the novels because nobody has read them for years.",),
        "rise": ("With a grant the collection becomes {n} percent larger.",),
        "question": "How many novels are there now?",
    },
    {
        "opening": (
            "{name} has {n} glass marbles in a jar.",
            "In a box under the bed {name} finds {n} glass marbles.",
        ),
        "gain": ("{name} wins {n} marbles in the school yard.", "For a good report {name} is given {n} marbles."),
        "lose": ("{n} marbles roll into the drain.", "{name} trades {n} marbles for a whistle."),
        "grow": ("An older sister gives up her own collection, and now {name} has {n} times as many marbles.",),
        "share": ("{name} shares the marbles fairly among {n} children, and takes one of the shares.",),
        "part": (
            "{name} loses {part} of the marbles in a bet.",
            "{name} hands {part} of the marbles to a little brother.",
        ),
        "percent": ("{n} percent of the marbles are chipped, and {name} puts them aside for good.",),
        "rise": ("At a flea market {name} makes the collection {n} percent larger.",),
        "question": "How many marbles does {name} have now?",
    },
    {
        "opening": (
            "At five in the morning {name} has baked {n} rolls.",
            "The bakery of {name} starts the day with {n} rolls.",
        ),
        "gain": ("A second tray adds {n} rolls.", "{name} bakes {n} rolls more."),
        "lose": ("A hotel collects {n} rolls.", "{n} rolls are sold over the counter."),
        "grow": ("A festival is announced, and {name} bakes on until there are {n} times as many rolls.",),
        "share": ("The rolls are spread evenly over {n} shops, and {name} sells in one of them.",),
        "part": (
            "By nine o'clock {part} of the rolls are gone.",
            "{name} sets {part} of the rolls aside for the shelter.",
        ),
        "percent": ("{n} percent of the rolls are burnt and cannot be sold.",),
        "rise": ("One more batch raises the number of rolls by {n} percent.",),
        "question": "How many rolls are left for sale?",
    },
    {
        "opening": ("{name} has saved {n} euros.", "There are {n} euros in the tin in which {name} saves."),
        "gain": ("{name} earns {n} euros by washing cars.", "A grandmother adds {n} euros."),
        "lose": ("A bicycle lamp costs {name} {n} euros.", "{name} spends {n} euros on a present."),
        "grow": ("After a year of work {name} has {n} times as much.",),
        "share": ("{name} splits the money equally among {n} envelopes and goes on with just one of them.",),
        "part": (
            "{name} lends {part} of the money to a friend.",
            "The repair of a window takes {part} of the money.",
        ),
        "percent": ("{name} gives {n} percent of the money to charity.",),
        "rise": ("A bonus makes the sum {n} percent larger.",),
        "question": "How many euros does {name} have now?",
    },
    {
        "opening": (
            "In the greenhouse of {name} grow {n} seedlings.",
            "{name} sows a bed, and {n} seedlings come up.",
        ),
        "gain": ("{n} more seedlings come up after the rain.", "{name} plants {n} seedlings from a friend."),
        "lose": ("Snails eat {n} seedlings.", "{name} sells {n} seedlings at the gate."),
        "grow": ("A new greenhouse is built, and soon there are {n} times as many seedlings.",),
        "share": (
            "The seedlings are planted in {n} rows of equal length, and only one row is watered and survives.",
        ),
        "part": (
            "A frost kills {part} of the seedlings.",
            "{name} gives {part} of the seedlings to a school garden.",
        ),
        "percent": ("{n} percent of the seedlings are too weak and are composted.",),
        "rise": ("Volunteers make the number of seedlings {n} percent larger.",),
        "question": "How many seedlings are alive and with {name} now?",
    },
    {
        "opening": (
            "{name} prints {n} tickets for a concert.",
            "For the theatre night {name} has {n} tickets to sell.",
        ),
        "gain": ("{name} prints {n} further tickets.", "{n} tickets that were ordered by mistake come back."),
        "lose": ("{n} tickets are sold online.", "The choir reserves {n} tickets."),
        "grow": ("The concert moves to a larger hall, and {name} now has {n} times as many tickets.",),
        "share": ("The tickets are shared equally by {n} sellers, of whom {name} is one.",),
        "part": (
            "On the first day {name} sells {part} of those tickets.",
            "{name} has to return {part} of the tickets.",
        ),
        "percent": ("A misprint makes {n} percent of the tickets worthless.",),
        "rise": ("Standing room is opened, and the number of tickets grows by {n} percent.",),
        "question": "How many tickets does {name} have left?",
    },
    {
        "opening": (
            "A tank on the farm of {name} holds {n} litres of rain water.",
            "{name} measures {n} litres of water in the cistern.",
        ),
        "gain": ("A shower adds {n} litres.", "{name} pumps in {n} litres from the well."),
        "lose": ("The cows drink {n} litres.", "{n} litres go to the vegetables."),
        "grow": ("After a week of rain there is {n} times as much water.",),
        "share": ("{name} lets the water run into {n} troughs, equally much in each, and uses one trough.",),
        "part": (
            "A leak costs {part} of the water.",
            "As {name} has promised, {part} of the water goes to a neighbour.",
        ),
        "percent": ("On a hot day {n} percent of the water dries up.",),
        "rise": ("Melting snow makes it {n} percent more.",),
        "question": "How many litres are at hand now?",
    },
)
