"""The screen of a terminal: what programs write is seen as a person would see it, whole or byte by byte."""

from __future__ import annotations

import pytest

from aenv.inside.sidecar.served.screen import COLUMNS, Screen

FULL = "x" * COLUMNS
SHOWN = {
    "lines": (b"one\r\ntwo\r\n", "one\ntwo"),
    "colours": (b"\x1b[1;31mred\x1b[0m \x1b[38;5;12mblue\x1b[m", "red blue"),
    "colours with colons": (b"\x1b[38:2:1:2:3mx\x1b[0my", "xy"),
    "a progress bar": (b"10%\r50%\r100%", "100%"),
    "a cursor that moves and erases": (b"abcdef\x1b[3D\x1b[Kx", "abcx"),
    "an editor's screen": (b"before\r\n\x1b[?1049h\x1b[Hinside", "inside"),
    "what was there before an editor": (b"before\r\n\x1b[?1049h\x1b[Hinside\x1b[?1049lafter", "before\nafter"),
    "modes of keyboards": (b"\x1b[>4;2mtext\x1b[>4;m\x1b[>1u\x1b[<u", "text"),
    "lines that scroll up": (b"a\r\nb\r\nc\x1b[1S\x1b[H", "b\nc"),
    "lines that scroll down": (b"a\r\nb\x1b[1T\x1b[H", "\na\nb"),
    "a region that scrolls": (b"1\r\n2\r\n3\r\n4\x1b[2;3r\x1b[3;1H\nX", "1\n3\nX\n4"),
    "an inserted line": (b"1\r\n2\x1b[1;1H\x1b[L0", "0\n1\n2"),
    "deleted characters": (b"abcdef\x1b[2G\x1b[2P", "adef"),
    "a line that is too long": (b"x" * COLUMNS + b"y", f"{FULL}\ny"),
    "a line that just fits": (b"x" * COLUMNS + b"\r\ny", f"{FULL}\ny"),
    "wide characters": ("漢字x".encode(), "漢字x"),
    "an accent of its own": ("e\u0301x".encode(), "e\u0301x"),
    "titles": (b"\x1b]0;title\x07te\x1b]0;title\x1b\\xt", "text"),
    "a control string": (b"\x1bP+q544e\x1b\\text", "text"),
    "a hyperlink": (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
    "a tab": (b"a\tb", "a       b"),
    "a place that is kept": (b"ab\x1b7\r\ncd\x1b8e", "abe\ncd"),
    "a repeated character": (b"x\x1b[3b", "xxxx"),
    "nothing to repeat": (b"\x1b[3b", ""),
    "a character repeated without end": (b"x\x1b[99999b", f"{FULL}\nx"),
    "frames without UTF-8": (b"\x1b(0lqk\x1b(B\r\n\x1b(0x\x1b(Bq", "┌─┐\n│q"),
    "a repeated part of a frame": (b"\x1b(0q\x1b[2b\x1b(B", "───"),
    "characters that are put in": (b"bc\r\x1b[4ha\x1b[4lB", "aBc"),
}


@pytest.mark.parametrize("what", SHOWN)
def test_a_screen_shows(what: str) -> None:
    data, text = SHOWN[what]
    whole, in_pieces = Screen(lambda _: None), Screen(lambda _: None)
    whole.write(data)
    for at in range(len(data)):
        in_pieces.write(data[at : at + 1])
    assert (whole.text(), in_pieces.text()) == (text, text)


def test_a_program_that_asks_for_the_cursor_is_answered() -> None:
    said: list[bytes] = []
    Screen(said.append).write(b"ab\r\nc\x1b[6n\x1b[c")
    assert said == [b"\x1b[2;2R", b"\x1b[?6c"]


def test_a_reset_forgets_modes() -> None:
    screen = Screen(lambda _: None)
    screen.write(b"\x1b(0\x1b[4h\x1bcq\rx")
    assert screen.text() == "x"
