"""The calls that a scripted model makes of the project `difficult`, and what of them must arrive or be said."""

from __future__ import annotations

from typing import Any

from .agent_models import Call, Turn

ANNA = {"name": "Anna Żółć", "address": {"street": "Rue de l'Été", "number": 3}}
POINTS = [{"x": 1.5, "y": -2.0, "label": None}, {"x": 0.0, "y": 1e9, "label": "far"}]
EXTRA = {"a": [1, {"b": None}], "ключ": "значение"}
ALL_GIVEN = {"text": "tab\there", "count": 0, "ratio": 1.25, "flag": False, "tags": ["x", "y z"]}

# Each call, and the arguments as the tool gets them.
GOOD: list[tuple[Call, dict[str, Any]]] = [
    (Call("union", {"value": 7}), {"value": 7}),
    (Call("union", {"value": "seven"}), {"value": "seven"}),
    (Call("union", {"value": [1, 2]}), {"value": [1, 2]}),
    (Call("union", {"value": None}), {"value": None}),
    (Call("nested", {"person": ANNA}), {"person": {**ANNA, "earlier": []}}),
    (
        Call("nested", {"person": {**ANNA, "earlier": [{"street": "A"}, {"street": "B", "number": 2}]}}),
        {"person": {**ANNA, "earlier": [{"street": "A", "number": 1}, {"street": "B", "number": 2}]}},
    ),
    (Call("defaults"), {"text": "a\nb", "count": 3, "ratio": 0.5, "flag": True, "tags": None}),
    (Call("defaults", ALL_GIVEN), ALL_GIVEN),
    (Call("enums", {"colour": "green", "level": "high"}), {"colour": "green", "level": "high"}),
    (Call("enums", {"colour": "red"}), {"colour": "red", "level": "low"}),
    (Call("objects", {"points": POINTS, "extra": EXTRA}), {"points": POINTS, "extra": EXTRA}),
    (Call("objects", {"points": [], "extra": {}}), {"points": [], "extra": {}}),
    (
        Call("variants", {"pet": {"kind": "cat"}, "pair": [1, "a"]}),
        {"pet": {"kind": "cat", "lives": 9}, "pair": [1, "a"]},
    ),
    (Call("nothing"), {}),
    (Call("unicode", {"größe": "大きい 🙂 \u2028 ok"}), {"größe": "大きい 🙂 \u2028 ok"}),
]
RECEIVED = [{"tool": call.name, "arguments": arrived} for call, arrived in GOOD]

# What a schema must refuse, so that a model that is held to it cannot say it.
WRONG = [
    Call("union", {"value": {"a": 1}}),
    Call("union", {"value": ["one"]}),
    Call("nested", {"person": {"name": "x"}}),
    Call("nested", {"person": {"name": "x", "address": {"street": "y", "number": 0}}}),
    Call("defaults", {"count": "three"}),
    Call("defaults", {"tags": [1]}),
    Call("enums", {"colour": "blue"}),
    Call("enums", {"colour": "red", "level": "middle"}),
    Call("objects", {"points": [{"x": 1.0}], "extra": {}}),
    Call("objects", {"points": {"x": 1.0, "y": 2.0}, "extra": {}}),
    Call("variants", {"pet": {"kind": "fish"}, "pair": [1, "a"]}),
    Call("variants", {"pet": {"kind": "dog"}, "pair": [1, "a"]}),
    Call("variants", {"pet": {"kind": "cat"}, "pair": [1, None]}),
    Call("unicode"),
]

BAD = Call("nested", {"person": {"name": "x"}})  # no address
SCRIPT: list[Turn] = [*(call for call, _ in GOOD), Call("fail"), BAD, Call("picture"), Call("drawing")]
FAIL, WRONG_ARGUMENTS, PICTURE, DRAWING = range(len(GOOD), len(GOOD) + 4)  # their turns
DOCUMENTED = {"nested": "Take models in models.", "unicode": "Grüße in 日本語 und 🙂."}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"  # how the image begins

# Calls of the project `foreign`: one of each of its tools.
FOREIGN = [
    Call("get-weather", {"my-place": "Rome", "$filter": "rain"}),
    Call("import", {"class": "x"}),
    Call("nothing"),
    Call("anything", {"value": {"a": [1, None]}}),
    Call("nested_anything", {"value": {"inner": 1}}),
    Call("move", {"start": {"x": 1}, "end": {"x": 2}}),
    Call("plant", {"tree": {"kids": [{"kids": [{"kids": []}]}]}}),
]
