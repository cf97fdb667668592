"""mini-program: a project in versions, Python beside it, and checks of its pages."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from aenv import ToolError
from aenv.inside.zygote.purity import is_same_for_all
from tests.envs.shells import ENVIRONMENTS, module, native_gateway, post, result_of, said
from tests.system import require

files = module("mini_program", "mini_program_files")
paths = module("mini_program", "mini_program_paths")
python = module("mini_program", "mini_program_python")
plain = module("mini_program", "mini_program_plain_html")

PAGE = '<!doctype html><html lang="en"><head><title>App</title>{}</head><body>{}</body></html>'
VIEWPORT = '<meta name="viewport" content="width=device-width, initial-scale=1">'


def project(**written: str) -> Any:
    made = files.Project()
    for name, text in written.items():
        made.change({name.replace("_", "."): text.encode()}, set(), f"write {name}")
    return made


def test_loading_the_environment_does_the_same_for_all_instances() -> None:
    assert is_same_for_all(str(ENVIRONMENTS / "mini_program" / "src"))


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("../secret", "leads out of the project"),
        ("a/../../b", "leads out of the project"),
        ("/", "names no file"),
        ("a\\b", "characters that a path cannot have"),
        ("a\nb", "characters that a path cannot have"),
        ("a" * 101, "too long"),
        ("/".join("ab" for _ in range(80)), "too long"),
    ],
)
def test_a_path_that_no_file_of_a_project_can_have_is_refused(path: str, words: str) -> None:
    with pytest.raises(ToolError, match=words):
        paths.chosen(path, "")


def test_path_and_file_path_name_the_same_parameter() -> None:
    assert paths.chosen("/css/./style.css", "") == paths.chosen("", "css/style.css") == "css/style.css"
    assert paths.chosen("a.txt", "/a.txt") == "a.txt"
    with pytest.raises(ToolError, match="name two files"):
        paths.chosen("a.txt", "b.txt")
    with pytest.raises(ToolError, match="give the path of the file as 'path'"):
        paths.chosen("", "")


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ("<ul><li>a<li>b</ul><p>c<p>d<br><img src=x alt=''>", []),
        ("<table><tr><td>1<td>2<tr><th>3</table>", []),
        ("<script>if (a < b) { '</div>' }</script>", []),
        ("<div><span>a</div>", ["element-is-not-closed span"]),
        ("a</b>", ["end-tag-without-start-tag b"]),
        ("<a id=1 id=2>x</a>", ["duplicate-attribute a"]),
        ("<section>", ["element-is-not-closed section"]),
    ],
)
def test_where_its_parser_could_not_be_installed_the_nesting_of_tags_is_checked(
    body: str, wrong: list[str]
) -> None:
    parser = plain.PlainParser()
    tree = parser.parse(PAGE.format("", body))
    assert [f"{code} {given['name']}" for _, code, given in parser.errors] == wrong
    assert (tree.get("lang"), next(tree.iter("title")).text) == ("en", "App")
    parser = plain.PlainParser()
    parser.parse("<p>a")
    assert [(where, code) for where, code, _ in parser.errors] == [((1, 0), "expected-doctype")]


def test_undo_and_redo_walk_through_versions_and_lose_none() -> None:
    made = project(a_txt="1", b_txt="2")
    made.undo()
    assert [*made.files] == ["a.txt"]
    made.change({"c.txt": b"3"}, set(), "another way")  # from the version that was shown
    made.undo()
    made.redo()
    assert [*made.files] == ["a.txt", "c.txt"]
    made.show(2)
    assert [*made.files] == ["a.txt", "b.txt"]
    with pytest.raises(ToolError, match="no version after this one"):
        made.redo()
    made.show(0)
    with pytest.raises(ToolError, match="no version before this one"):
        made.undo()


def test_the_changes_of_one_wish_are_one_version() -> None:
    made = files.Project()
    made.begin("build it", "agent")
    for name in ("a", "b"):
        made.change({name: b"x"}, set(), f"write {name}")
    made.begin("", "")
    made.change({"c": b"x"}, set(), "write c", "you")
    assert [(one["summary"], one["by"]) for one in made.history()["versions"]][1:] == [
        ("build it", "agent"),
        ("write c", "you"),
    ]
    made.undo()
    made.undo()
    assert made.files == {}


def test_what_a_person_types_within_a_minute_is_one_version_until_it_was_undone() -> None:
    made = project(a_txt="1")
    for text in (b"12", b"123"):
        made.change({"a.txt": text}, set(), "edit a.txt", "you", joins=True)
    assert [one["summary"] for one in made.history()["versions"]][1:] == ["write a_txt", "edit a.txt"]
    made.undo()
    made.change({"a.txt": b"1!"}, set(), "edit a.txt", "you", joins=True)
    made.show(2)
    assert made.read("a.txt") == b"123"
    made.change({"a.txt": b"1234"}, set(), "edit a.txt", "you", joins=True)
    made.change({"b.txt": b""}, set(), "edit b.txt", "you", joins=True)
    assert len(made.history()["versions"]) == 5
    assert made.read("a.txt") == b"1234"


def test_what_is_too_large_leaves_the_project_as_it_was() -> None:
    made = project(a_txt="1")
    before = made.history()
    with pytest.raises(ToolError, match="a file has at most"):
        made.change({"b": bytes(files.MAX_FILE_BYTES + 1)}, set(), "")
    with pytest.raises(ToolError, match="it has at most 200"):
        made.change({str(number): b"x" for number in range(200)}, set(), "")
    with pytest.raises(ToolError, match=r"the project would have .* bytes"):
        made.change({f"{n}": bytes([n]) * files.MAX_FILE_BYTES for n in range(9)}, set(), "")
    with pytest.raises(ToolError, match=r"'a.txt' is a file, so there can be no 'a.txt/b'"):
        made.change({"a.txt/b": b""}, set(), "")
    with pytest.raises(ToolError, match="has changed meanwhile"):
        made.change({"a.txt": b"2"}, set(), "", expected={"a.txt": ""})
    assert made.history() == before


def test_old_versions_are_dropped_and_the_one_that_is_shown_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_HISTORY_BYTES", 3000)  # the real one takes seconds to fill
    made = files.Project()
    for number in range(150):
        made.change({"a.txt": b"%04d" % number * 100}, set(), "")
    history = made.history()
    assert len(history["versions"]) <= 8 and sum(history["sizes"].values()) <= 3000
    assert made.read("a.txt") == b"0149" * 100


def test_a_saved_project_is_as_it_was_and_one_that_was_tampered_with_is_refused() -> None:
    made = project(a_txt="1", b_txt="2")
    made.undo()
    saved = made.history()
    contents = made.contents([*saved["sizes"]])
    other = files.Project()
    other.load(saved["shown"], saved["versions"], contents)
    assert [*other.files] == ["a.txt"]
    other.redo()
    assert other.read("b.txt") == b"2"
    wrong = dict.fromkeys(contents, base64.b64encode(b"else").decode())
    with pytest.raises(ToolError, match="whose content is not given"):
        other.load(saved["shown"], saved["versions"], wrong)
    saved["versions"][1]["files"]["../up"] = next(iter(contents))
    with pytest.raises(ToolError, match="leads out of the project"):
        other.load(saved["shown"], saved["versions"], contents)
    assert other.read("b.txt") == b"2"


def test_python_changes_files_and_what_cannot_be_one_is_told() -> None:
    made = project(a_txt="1", old_txt="x", tool_py="def twice(n):\n    return 2 * n\n")
    code = (
        "import os, tool\nos.makedirs('data/deep')\nopen('data/deep/n.txt', 'w').write(str(tool.twice(21)))\n"
        "os.remove('old.txt')\nos.symlink('/etc/passwd', 'link')\nopen('big', 'wb').write(bytes(600 << 10))\n"
        "os.mkfifo('pipe')\nprint(open('a.txt').read())\n"
    )
    ran = python.run(made, code, 30)
    assert (ran["stdout"], ran["stderr"], ran["exit_code"]) == ("1\n", "", 0)
    assert ran["changed"] == ["data/deep/n.txt", "old.txt"]
    assert [line.partition(":")[0] for line in ran["ignored"]] == ["big", "link", "pipe"]
    assert (made.read("data/deep/n.txt"), sorted(made.files)) == (b"42", ["a.txt", "data/deep/n.txt", "tool.py"])


def test_python_that_does_not_end_is_ended_and_too_much_output_is_cut() -> None:
    made = project(a_txt="1")
    ran = python.run(made, "open('a.txt', 'w').write('2')\nprint('x' * 200_000, flush=True)\nwhile True: pass", 1)
    assert ran["timed_out"] and ran["exit_code"] != 0 and "[ended after 1 s]" in ran["stderr"]
    assert len(ran["stdout"]) < 110_000 and "more bytes]" in ran["stdout"]
    assert made.read("a.txt") == b"2"
    assert python.run(made, "import sys; print(repr(sys.stdin.read()))", 10)["stdout"] == "''\n"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all, since the requirements are installed once in it."""
    return tmp_path_factory.mktemp("mini-program")


@pytest.mark.slow  # the requirements are installed
@pytest.mark.timeout(120)
async def test_an_instance_checks_pages_by_parser_and_in_chromium_and_without_it_by_their_text(home: Path) -> None:
    require("chromium", "chromium")
    async with native_gateway(home, "mini_program") as gateway:
        id = (await gateway.create("mini-program@1.0.0"))["id"]

        async def found(tool: str, instance: str = id, **arguments: Any) -> Any:
            return (await result_of(gateway, instance, tool, **arguments))["structured"]

        narrow = '<p style="width:900px">wide</p><img src="no.png"><input id="a">'
        script = "<script>console.log('hello'); localStorage.setItem('a', 1); nothing.here()</script>"
        bad = PAGE.format("", f"{narrow}<div></p>{script}")
        await found("write_file", path="index.html", content=bad)
        checked = await found("validate_html")
        assert not checked["valid"] and checked["errors"][0]["line"] == 1
        told = "\n".join(checked["warnings"])
        for words in ('no <meta name="viewport"', "no alt", "has no label", "'no.png', and the project has no"):
            assert words in told
        responsive = await found("check_responsive_design", widths=[360])
        assert (responsive["checked_by"], responsive["responsive"]) == ("chromium", False)
        assert responsive["windows"][0]["page_width"] >= 900 and responsive["windows"][0]["too_wide"] == ["p"]
        console = await found("log_browser_console", seconds=0)
        texts = [one["text"] for one in console["messages"]]
        assert "hello" in texts and any("nothing is not defined" in text for text in texts)
        assert any("404" in text for text in texts) and console["checked_by"] == "chromium"
        outside = PAGE.format(VIEWPORT, '<script src="http://example.com/x.js"></script><p>ok</p>')
        await found("write_file", file_path="/index.html", content=outside)
        assert (await found("validate_html"))["valid"]
        assert "blocked" in (await found("log_browser_console"))["messages"][0]["text"].lower()
        assert "does not load" in (await found("validate_html"))["warnings"][0]

        network = "import urllib.request\nurllib.request.urlopen('http://example.com', timeout=2)"
        assert (await found("execute_python_code", code=network))["exit_code"] == 1
        assert "no file 'none.html'" in await said(gateway, id, "validate_html", path="none.html")
        endless = PAGE.format("", "<script>while (true) {}</script>")
        await found("write_file", path="endless.html", content=endless)
        assert "Chromium" in await said(gateway, id, "log_browser_console", path="endless.html")

        await post(gateway, id, "/functions/undo")
        assert [one["path"] for one in (await found("list_files"))["files"]] == ["index.html"]
        saved = await post(gateway, id, "/functions/history")
        contents = await post(gateway, id, "/functions/contents", digests=[*saved["sizes"]])

        without = {"BROWSER_CHROMIUM": "/no/such/program"}
        other = (await gateway.create("mini-program@1.0.0", environment_variables=without))["id"]
        loaded = {"shown": saved["shown"], "versions": saved["versions"], "contents": contents}
        await post(gateway, other, "/functions/load_project", **loaded)
        assert await said(gateway, other, "read_file", path="index.html") == outside
        await found("write_file", other, path="index.html", content=bad)
        console = await found("log_browser_console", other)
        assert console["messages"][0]["text"].startswith("no.png:") and console["checked_by"].startswith("static:")
        responsive = await found("check_responsive_design", other)
        assert (responsive["responsive"], responsive["checked_by"][:6]) == (False, "static")
        assert any("900px" in one for one in responsive["problems"])
