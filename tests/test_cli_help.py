"""Help pages: every command and option is explained in plain words, and every command shows an example."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import aenv
from aenv.cli import commands
from aenv.cli.main import COMMANDS, GROUPS, cli, run

VAGUE = re.compile(r"\b(nobody|whoever|somebody)\b", re.IGNORECASE)
Found = tuple[tuple[str, ...], click.Command]


def walk(group: click.Group, path: tuple[str, ...]) -> Iterator[Found]:
    """A group and all commands below it, each with the words that lead to it."""
    yield path, group
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from walk(command, (*path, name))
        else:
            yield (*path, name), command


def every_command() -> list[Found]:
    """Also those that no list names: `eval show`, and `data prepare` of any environment."""
    _, show, _ = cli.resolve_command(click.Context(cli), ["eval", "show"])
    prepare = cli.get_command(click.Context(cli), "data")
    assert isinstance(prepare, click.Group)
    prepare = prepare.commands["prepare"]
    assert isinstance(prepare, click.Group)
    any_environment = prepare.get_command(click.Context(prepare), "my-env")
    assert show and any_environment
    return [
        *walk(cli, ("aenv",)),
        (("aenv", "eval", "show"), show),
        (("aenv", "data", "prepare", "my-env"), any_environment),
    ]


EVERY = {" ".join(path): command for path, command in every_command()}


def texts() -> Iterator[tuple[str, str]]:
    """What help pages say about commands and options, each with its place."""
    for path, command in EVERY.items():
        yield path, command.help or ""
        for option in command.params:
            if isinstance(option, click.Option):
                yield f"{path} {option.opts[-1]}", option.help or ""


def page_of(path: str) -> str:
    """The help page as `aenv` shows it, with room for the longest line."""
    return CliRunner().invoke(cli, [*path.split()[1:], "--help"], prog_name="aenv", terminal_width=500).output


def examples() -> Iterator[tuple[str, str]]:
    for path, command in EVERY.items():
        yield from ((path, example) for example in getattr(command, "examples", ()))


class TestTexts:
    def test_every_command_and_every_option_is_explained(self) -> None:
        assert [place for place, text in texts() if len(text.split()) < 2] == []

    def test_a_text_names_its_subject(self) -> None:
        assert [place for place, text in texts() if text.startswith(("Of ", "At "))] == []

    def test_a_text_names_people_by_their_role(self) -> None:
        assert [place for place, text in texts() if VAGUE.search(text)] == []

    def test_a_text_is_made_of_sentences(self) -> None:
        """It begins with a capital letter, and ends with a full stop or with the default."""
        firsts = [(place, text.split("\n\n")[0].strip()) for place, text in texts()]
        assert [place for place, text in firsts if not re.fullmatch(r"[A-Z].*[.\]]", text, re.DOTALL)] == []

    def test_a_default_is_shown_once_and_as_people_write_it(self) -> None:
        pages = {path: page_of(path) for path in EVERY}
        assert [path for path, page in pages.items() if '[default: ""]' in page] == []
        assert [path for path, page in pages.items() if re.search(r"\[default:[^\]]*\]\s+\[default:", page)] == []

    def test_a_value_is_named_after_what_it_is(self) -> None:
        assert [path for path in EVERY if re.search(r"\b(FLOAT|INTEGER) RANGE\b", page_of(path))] == []


class TestExamples:
    def test_every_command_has_one_of_its_own(self) -> None:
        missing = [path for path in EVERY if not any(path in text for place, text in examples() if place == path)]
        assert missing == []

    @pytest.mark.parametrize("path", ["aenv", "aenv init", "aenv instance", "aenv data prepare my-env"])
    def test_a_page_ends_with_them_as_they_are_typed(self, path: str) -> None:
        page = CliRunner().invoke(EVERY[path], ["--help"], prog_name=path, terminal_width=40).output
        shown = page.partition("Examples:\n")[2].splitlines()
        assert shown == [f"  {text}" for place, text in examples() if place == path] != []

    def test_they_fit_into_a_terminal(self) -> None:
        assert [text for _, text in examples() if len(text) > 78] == []

    @pytest.mark.parametrize("path", COMMANDS)
    def test_their_commands_and_options_exist(self, path: str) -> None:
        for place, example in examples():
            if place.split()[1:2] == [path]:
                for words in command_lines(example):
                    parse(words[1:])


def option(path: str, flag: str) -> str:
    """The parameter that `flag` of a command sets."""
    found = [each.name for each in EVERY[path].params if isinstance(each, click.Option) and flag in each.opts]
    assert len(found) == 1, f"{path} {flag}: {found}"
    return str(found[0])


class TestFormats:
    def test_a_command_that_prints_json_offers_it_like_all_others(self) -> None:
        flags = {
            path: {flag for each in command.params if isinstance(each, click.Option) for flag in each.opts}
            for path, command in EVERY.items()
        }
        with_json = [path for path, known in flags.items() if "--json" in known]
        assert {"aenv call", "aenv eval", "aenv instance list", "aenv list", "aenv version"} <= {*with_json}
        assert {option(path, "--output") for path in with_json} == {"output_format"}
        assert {option(path, "--json") for path in with_json} == {"json_flag"}

    @pytest.mark.parametrize(
        ("path", "flags", "name"),
        [
            ("aenv list", ("-f", "--format"), "output_format"),
            ("aenv list", ("-o", "--offset"), "offset"),
            ("aenv get", ("-f", "--format"), "output_format"),
            ("aenv config show", ("--format",), "output_format"),
            ("aenv config export", ("--output",), "file"),
            ("aenv version", ("-j",), "json_flag"),
            *(("aenv instance " + each, ("-o",), "output_format") for each in ("create", "list", "get", "info")),
            *(("aenv service " + each, ("-o",), "output_format") for each in ("create", "list", "get", "update")),
        ],
    )
    def test_published_options_mean_what_they_meant(self, path: str, flags: tuple[str, ...], name: str) -> None:
        assert [option(path, flag) for flag in flags] == [name] * len(flags)

    @pytest.mark.parametrize("words", [["--json"], ["-j"], ["-o", "json"], ["--output", "json"]])
    def test_all_names_of_a_format_print_the_same(self, words: list[str]) -> None:
        said = CliRunner().invoke(cli, ["version", *words]).output
        assert json.loads(said)["version"] == aenv.__version__


def command_lines(example: str) -> Iterator[list[str]]:
    """The calls of aenv in a line for a shell."""
    line = example.partition("  #")[0].partition(" < ")[0].partition(" > ")[0]
    for part in re.split(r" && |\$\(|\)", line):
        words = shlex.split(part.strip('"'))
        if "aenv" in words:
            yield words[words.index("aenv") :]


def parse(words: list[str]) -> None:
    """Fails where the command, an option or a required argument does not exist; files need not exist."""
    group: click.Command = cli
    context = click.Context(cli)
    while isinstance(group, click.Group) and words and not words[0].startswith("-"):
        _, found, words = group.resolve_command(context, words)
        assert found is not None
        group, context = found, click.Context(found, parent=context)
    before = words[: words.index("--")] if "--" in words else words
    group.make_parser(context).parse_args(list(before))


def test_a_bad_number_is_refused_in_plain_words_by_every_option() -> None:
    """click's own words are "'x' is not a valid float range"."""
    numbers = (click.types.IntParamType, click.types.FloatParamType)
    options = [(path, option) for path, command in EVERY.items() for option in command.params]
    found = [(path, option) for path, option in options if isinstance(option.type, numbers)]
    assert len(found) > 50
    for path, option in found:
        if getattr(option, "hidden", False):
            continue
        with pytest.raises(click.BadParameter) as refused:
            option.type.convert("x", option, None)
        assert "is not a valid" not in refused.value.message, f"{path} {option.name}: {refused.value.message}"


@pytest.mark.parametrize(
    "words",
    ["serve --rate-limit nan", "serve --rate-limit -1", "eval x --temperature inf", "eval x --price-in -1"],
)
def test_amounts_are_finite_and_not_negative(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    command, *_, option, value = words.split()
    assert run(words.split()) == 2
    expected = f"aenv: invalid value for '{option}': must be a number of 0 or greater, got '{value}'"
    assert capsys.readouterr().err.splitlines() == [expected, f"try: aenv {command} --help"]


def test_the_overview_is_grouped_by_what_people_do() -> None:
    page = CliRunner().invoke(cli, ["--help"], prog_name="aenv", terminal_width=80).output
    titles = re.findall(r"^(\w.*):$", page, re.MULTILINE)
    assert titles == ["Options", *GROUPS, "Examples"]
    assert [title.split()[0] for title in GROUPS][:5] == ["Write", "Run", "Share", "Operate", "Evaluate"]


ALONE = [path for path, command in EVERY.items() if isinstance(command, click.Group) and command.no_args_is_help]


@pytest.mark.parametrize("path", ALONE)
def test_a_group_without_a_command_prints_its_help_page_on_stderr_and_is_misuse(
    path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(path.split()[1:]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    lines = said.err.splitlines()
    assert lines[0].startswith(f"Usage: {path}") and "Examples:" in lines and len(lines) > 10, said.err


def test_a_command_takes_one_line_of_the_overview() -> None:
    page = CliRunner().invoke(cli, ["--help"], prog_name="aenv", terminal_width=80).output
    rows = page.partition("Write environments:")[2].partition("Examples:")[0].splitlines()
    assert [row for row in rows if row.startswith("   ")] == []
    assert len([row for row in rows if row.startswith("  ")]) == len(COMMANDS)


def test_the_folder_of_commands_holds_commands_and_nothing_else() -> None:
    """A module is called as its command: `data_prepare.py` has the command of `aenv data prepare`."""
    folder = [str(Path(place)) for place in commands.__path__]
    for module in pkgutil.iter_modules(folder):
        found = importlib.import_module(f"aenv.cli.commands.{module.name}")
        assert EVERY[f"aenv {module.name.replace('_', ' ')}"] is found.command


def test_commands_import_no_command_but_those_of_their_group() -> None:
    """What several commands share lies beside the folder."""
    for file in Path(commands.__path__[0]).glob("*.py"):
        for names in re.findall(r"^ *from \.(?: |\w+ )import (.+)$", file.read_text(), re.MULTILINE):
            for name in re.split(r", ", names):
                assert name.startswith(file.stem) or file.stem == "instances", f"{file.name}: {name}"
