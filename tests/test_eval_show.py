"""`aenv eval show`: a file of results as a table, and as a picture."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from aenv.base.errors import Conflict, InvalidRequest
from aenv.rollouts import journal, overview, pictures
from aenv.rollouts.results import RolloutResult
from tests.command_line import aenv, on_terminal

SVG = "{http://www.w3.org/2000/svg}"
ABOUT = {"environment": "sums@1.0.0", "digest": "d", "agent": "llm", "model": "m", "seed": 0}


def row(task: str, reward: float | None, outcome: str = "reward", **more: Any) -> dict[str, Any]:
    judged = {"reward": reward, "passed": None if reward is None else reward == 1.0}
    return {"task": task, "outcome": outcome, **judged, "seconds": 2.0, "steps": 4, **ABOUT, **more}


FOUND = [
    row("t10", 0.5),
    row("t2", 0.5),
    row("best", 1.0, attempt=1),
    row("best", 0.5, attempt=2, steps=None, seconds=4.0),
    row("best", None, "timeout", attempt=3, error="too slow", steps=7),
    row("lost", None, "not_ready", error="no abacus"),
    row("zero", 0.0),
]


def typed(rows: Sequence[dict[str, Any]]) -> list[RolloutResult]:
    return [RolloutResult.read(one) for one in rows]


def written(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return path


class TestTable:
    def test_each_task_has_a_row_with_the_best_first_and_what_was_not_judged_last(self, tmp_path: Path) -> None:
        done = aenv("eval", "show", written(tmp_path / "x.jsonl", FOUND))
        assert done.returncode == 0, done.stderr
        assert done.stderr == "sums@1.0.0, llm, m\n"
        table = done.stdout.split("\n\n")[0].splitlines()
        assert [re.split("  +", line) for line in table] == [
            ["Task", "Attempts", "Judged", "Mean reward", "Outcomes", "Steps", "Seconds"],
            ["best", "3", "2", "0.750", "1 fail, 1 pass, 1 timeout", "5.5", "2.7"],
            ["t2", "1", "1", "0.500", "1 fail", "4", "2.0"],
            ["t10", "1", "1", "0.500", "1 fail", "4", "2.0"],
            ["zero", "1", "1", "0.000", "1 fail", "4", "2.0"],
            ["lost", "1", "0", "-", "1 not_ready", "4", "2.0"],
        ]
        assert "all: 5 tasks, 7 attempts, 5 judged" in done.stdout
        assert "not_ready lost: no abacus" in done.stdout

    def test_a_terminal_of_50_columns_can_show_it(self, tmp_path: Path) -> None:
        shown = on_terminal("eval", "show", written(tmp_path / "x", FOUND), columns=50)
        assert max(len(line.rstrip()) for line in shown.splitlines()) <= 50
        assert "not_ready lost" in shown

    def test_the_last_line_of_an_attempt_counts_and_a_torn_one_does_not(self, tmp_path: Path) -> None:
        file = written(tmp_path / "x", [row("a", None, "timeout"), row("b", 0.0), row("a", 1.0)])
        file.write_bytes(file.read_bytes() + b'{"task": "c", "rew')
        before = file.read_bytes()
        assert journal.results(file) == typed([row("a", 1.0), row("b", 0.0)])
        assert file.read_bytes() == before

    def test_what_is_no_file_of_results_is_refused(self, tmp_path: Path) -> None:
        for rows, error, why in (
            ([], InvalidRequest, "has no results"),
            ([row("a", 7.0)], InvalidRequest, r"line 1 .*field 'reward' must be a number in 0..1"),
            ([row("a", 1.0), row("b", 1.0, agent="nop")], Conflict, "line 2 is of agent 'nop', and this is 'llm'"),
        ):
            with pytest.raises(error, match=why):
                journal.results(written(tmp_path / "x", rows))
        done = aenv("eval", "show", tmp_path / "none")
        assert (done.returncode, done.stderr) == (1, f"aenv: '{tmp_path / 'none'}': no such file or directory\n")


class TestCommand:
    def test_an_environment_of_that_name_is_meant_with_its_version(self, tmp_path: Path) -> None:
        done = aenv("eval", "show@1.0.0")
        assert "missing option '--agent'" in done.stderr
        assert "Usage: aenv eval show [OPTIONS] FILE" in aenv("eval", "show", "--help").stdout
        assert "aenv eval show FILE" in aenv("eval", "--help").stdout

    @pytest.mark.parametrize("name", ["x.pdf", "x", "x.svg.gz"])
    def test_pictures_of_other_formats_are_refused_before_anything_is_read(
        self, tmp_path: Path, name: str
    ) -> None:
        done = aenv("eval", "show", tmp_path / "none", "--out", name, cwd=tmp_path)
        assert done.returncode == 2
        assert (
            f"'{name}': charts are SVG or PNG files; use a name that ends with .svg or .png\ntry: --out "
            in done.stderr
        )
        assert list(tmp_path.iterdir()) == []

    def test_a_png_is_drawn_or_the_package_for_it_is_named(self, tmp_path: Path) -> None:
        out = tmp_path / "x.png"
        done = aenv("eval", "show", written(tmp_path / "x.jsonl", FOUND), "--out", out)
        if find_spec("resvg_py"):
            assert (done.returncode, out.read_bytes()[:4]) == (0, b"\x89PNG"), done.stderr
        else:
            assert (done.returncode, "pip install 'resvg-py>=0.2'" in done.stderr) == (1, True), done.stderr
            assert not out.exists()

    def test_the_picture_is_written_and_named(self, tmp_path: Path) -> None:
        out = tmp_path / "x.svg"
        done = aenv("eval", "show", written(tmp_path / "x.jsonl", FOUND), "--out", out)
        assert done.returncode == 0, done.stderr
        assert f"chart: {out}" in done.stderr
        assert out.read_text() == pictures.svg("sums@1.0.0, llm, m: rewards by task", overview.rows(typed(FOUND)))


class Picture:
    """An SVG, read again."""

    def __init__(self, found: Sequence[dict[str, Any]], title: str = "title") -> None:
        self.text = pictures.svg(title, overview.rows(typed(found)))
        self.root = ElementTree.fromstring(self.text)
        self.width, self.height = (float(self.root.attrib[side]) for side in ("width", "height"))

    def boxes(self, kind: str) -> list[dict[str, float]]:
        """Rectangles of a class within the bars; the legend has others."""
        found = [one for one in self.root.iterfind(f"{SVG}g/{SVG}rect") if one.get("class") == kind]
        return [{side: float(one.attrib[side]) for side in ("x", "y", "width", "height")} for one in found]

    def words(self, kind: str) -> list[str]:
        return [one.text or "" for one in self.root.iter(f"{SVG}text") if one.get("class") == kind]


class TestPicture:
    def test_bars_are_as_long_as_rewards_and_what_was_not_judged_is_marked(self) -> None:
        picture = Picture(FOUND)
        tracks, bars, (none,) = picture.boxes("track"), picture.boxes("bar"), picture.boxes("none")
        shares = [bar["width"] / track["width"] for bar, track in zip(bars, tracks, strict=True)]
        assert shares == pytest.approx([0.75, 0.5, 0.5, 0.0], abs=0.001)
        assert none["width"] == tracks[0]["width"]
        assert picture.words("mark") == ["not_ready"]
        assert picture.words("ink title") == ["title"]
        assert picture.words("faint note") == ["tasks: 5, judged: 4, mean reward 0.438"]
        assert picture.words("faint") == ["0", "0.25", "0.5", "0.75", "1"]
        assert picture.words("ink")[:4] == ["best", "0.75 2/3", "t2", "0.50"]
        assert "1/2: one of two attempts was judged" in picture.words("ink note")

    @pytest.mark.parametrize("tasks", [1, 10, 40, 41, 81, 161, 300, 1001])
    def test_rows_do_not_touch_and_stay_within_the_picture(self, tasks: int) -> None:
        found = [
            row(f"project__repository-{n}", None, "timeout") if n % 9 == 8 else row(str(n), 0.5)
            for n in range(tasks)
        ]
        picture = Picture(found)
        boxes = [*picture.boxes("track"), *picture.boxes("none")]
        assert len(boxes) == tasks
        places = sorted((box["x"], box["y"]) for box in boxes)
        assert len(set(places)) == tasks
        assert all(b[1] - a[1] >= 18 for a, b in pairwise(places) if a[0] == b[0])
        assert all(box["x"] + box["width"] + 90 <= picture.width for box in boxes)
        assert all(box["y"] + box["height"] <= picture.height for box in boxes)
        assert min(box["width"] for box in boxes) >= 90
        assert picture.height <= 1600 or tasks > 300

    def test_long_names_lose_their_middle_and_keep_it_in_the_tooltip(self) -> None:
        name = "a" * 90 + "-12907"
        picture = Picture([row(name, 1.0), row("b", 0.0)])
        shown = picture.words("ink")[0]
        assert re.fullmatch("a{10,40}…a{5,40}-12907", shown)
        titles = [one.text or "" for one in picture.root.iterfind(f"{SVG}g/{SVG}title")]
        assert titles[0] == f"{name}: mean reward 1.000 (1 pass)"

    def test_names_of_others_cannot_break_it(self) -> None:
        picture = Picture([row("<&>\"'\x00\x1b\ud800日本", 1.0)], title="</svg><script>")
        assert picture.words("ink")[0] == "<&>\"'日本"
        assert list(picture.root.iter(f"{SVG}script")) == []

    def test_where_attempts_failed_in_several_ways_the_most_frequent_is_named(self) -> None:
        outcomes = ("timeout", "infra_error", "infra_error")
        found = [row("a", None, outcome, attempt=n) for n, outcome in enumerate(outcomes, 1)]
        picture = Picture(found)
        assert picture.words("mark") == ["infra_error +1"]
        assert picture.words("faint note") == ["tasks: 1, judged: 0"]

    def test_it_has_a_background_and_colours_for_light_and_dark(self) -> None:
        text = Picture(FOUND).text
        light, _, dark = text.partition("@media (prefers-color-scheme: dark)")
        for kind in ("paper", "ink", "faint", "track", "bar", "mark"):
            assert f".{kind} {{ fill: #" in light
            assert f".{kind} {{ fill: #" in dark
        for colours in (light, dark):
            paper = luminance(colours, "paper")
            for kind in ("ink", "faint", "mark"):
                lighter, darker = sorted((paper, luminance(colours, kind)), reverse=True)
                assert (lighter + 0.05) / (darker + 0.05) >= 4.5  # what WCAG asks of text


def luminance(style: str, kind: str) -> float:
    """Of the colour that a class is filled with, as WCAG defines it."""
    found = re.search(rf"\.{kind} {{ fill: #(..)(..)(..) }}", style)
    assert found
    parts = [int(part, 16) / 255 for part in found.groups()]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
