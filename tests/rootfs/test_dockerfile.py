"""Dockerfiles: how their text is understood, and which mistakes are told with line and fix."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aenv.base.errors import InvalidRequest
from aenv.isolation.rootfs.dockerfile import Instruction, parse


def instructions(*lines: str) -> list[Instruction]:
    return parse("\n".join(("FROM scratch", *lines))).stages[0].instructions


def only(*lines: str) -> Instruction:
    found = instructions(*lines)
    assert len(found) == 1
    return found[0]


def test_stages_have_bases_names_and_instructions() -> None:
    file = parse(
        "ARG V=3.12\nFROM --platform=linux/amd64 python:$V AS Build\nRUN a\nFROM scratch\nCOPY --from=build x y\n"
    )
    assert [(stage.base, stage.name) for stage in file.stages] == [("python:$V", "build"), ("scratch", "")]
    assert [argument.text for argument in file.arguments] == ["V=3.12"]
    assert file.stages[0].origin.flags == (("platform", "linux/amd64"),)
    assert file.stages[1].instructions[0].flags == (("from", "build"),)


def test_lines_go_on_after_a_backslash_and_comments_between_them_are_left_out() -> None:
    run = only("run echo a \\", "  # not this", "", "  && echo b \\  ", "  && echo '# this'")
    assert run.name == "RUN" and run.text == "echo a   && echo b   && echo '# this'"
    assert run.line == 2


def test_a_backquote_may_be_the_escape() -> None:
    file = parse("# syntax=docker/dockerfile:1\n# escape=`\nFROM scratch\nRUN a `\n b\\c\n")
    assert file.stages[0].instructions[0].text == "a  b\\c"


def test_a_comment_is_no_directive_after_the_first_line_of_another_kind() -> None:
    file = parse("# hello\n# escape=`\nFROM scratch\nRUN a \\\n b\n")
    assert file.stages[0].instructions[0].text == "a  b"


def test_windows_line_ends_and_a_byte_order_mark_do_not_matter() -> None:
    assert parse("\ufeffFROM scratch\r\nRUN a \\\r\n b\r\n").stages[0].instructions[0].text == "a  b"


def test_the_list_form_is_told_from_the_shell_form() -> None:
    assert only('RUN ["a", "b c"]').listed == ("a", "b c")
    assert only("RUN [ -f x ] && y").listed is None
    assert only('RUN ["a", 1]').listed is None
    assert only(r'RUN ["a\u0000", "\ud800"]').listed is None


def test_flags_are_those_before_the_first_word() -> None:
    run = only("RUN --mount=type=cache,target=/x --network=none pip install --no-deps y")
    assert run.flags == (("mount", "type=cache,target=/x"), ("network", "none"))
    assert run.text == "pip install --no-deps y"


def test_a_heredoc_takes_the_lines_below_as_they_are() -> None:
    run = only("RUN <<EOF", "# kept", "a \\", "FROM no", "EOF")
    assert run.heredocs[0].text == "# kept\na \\\nFROM no\n" and not run.heredocs[0].is_literal


def test_several_heredocs_follow_each_other_and_tabs_can_be_left_out() -> None:
    copy, after = instructions("COPY <<one <<-'two' /d/", "1", "one", "\t$X", "\ttwo", "RUN y")
    assert [(doc.name, doc.text, doc.is_literal) for doc in copy.heredocs] == [
        ("one", "1\n", False),
        ("two", "$X\n", True),
    ]
    assert after.text == "y"


@pytest.mark.parametrize("line", ["RUN echo '<<EOF'", "RUN cat <<<word", "RUN echo $((1<<2))", "LABEL a=<<EOF"])
def test_not_everything_with_two_arrows_is_a_heredoc(line: str) -> None:
    assert only(line).heredocs == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("$A ${A}b", ["1", "1b"]),
        ("${B:-x$A} ${B:+y} ${A:-x} ${A:+y}", ["x1", "", "1", "y"]),
        ("${E:-x} ${E-x} ${E:+y} ${E+y}", ["x", "", "", "y"]),
        ("${B:-${A}z}", ["1z"]),
        (r"\$A '$A' \"$A", ["$A", "$A", '"1']),
        ('"$A b" c', ["1 b", "c"]),
        (r'"a\n\"" a\ b', ['a\\n"', "a b"]),
        ("$S", ["with space"]),
        ("a$ $% 5$", ["a$", "$%", "5$"]),
        ("'' x", ["", "x"]),
    ],
)
def test_words_are_substituted_and_unquoted(text: str, words: list[str]) -> None:
    assert only(f"COPY {text}").words({"A": "1", "E": "", "S": "with space"}) == words


def test_env_has_two_forms() -> None:
    assert list(only("ENV A=1 B='two words' C=$X").pairs({"X": "x"})) == [
        ("A", "1"),
        ("B", "two words"),
        ("C", "x"),
    ]
    assert list(only('ENV A  all of "this"').pairs({})) == [("A", "all of this")]
    assert list(only("ARG A B=2").pairs({})) == [("A", None), ("B", "2")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no FROM; begin with FROM IMAGE"),
        ("RUN a", "line 1: RUN stands before FROM"),
        ("FROM a\n\nRUM b", "line 3: unknown instruction 'RUM'; did you mean RUN?"),
        ("FROM a\nRUN", "line 2: RUN needs something after it"),
        ("FROM a b c", "line 1: FROM must be FROM IMAGE, or FROM IMAGE AS NAME"),
        ("FROM a\nRUN <<EOF\nx", "line 2: the lines after <<EOF have no end; put EOF on one of its own"),
        ("FROM a\nRUN \0", "the Dockerfile is not text"),
        ("# escape=x\nFROM a", "line 1: escape must be"),
    ],
)
def test_mistakes_are_told_with_line_and_fix(text: str, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse(text)
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("ENV A=1 B", "line 2: 'B' is not NAME=VALUE; put quotes around values with spaces"),
        ("ENV A", "line 2: ENV needs a name and a value"),
        ("ENV A='x", "line 2: a quote (') is not closed"),
        ("ENV A=${B#x}", "line 2: cannot substitute '${B#x}'; only ${X}, ${X:-default} and ${X:+other} work"),
        ("ARG 1=2", "line 2: '1=2' is not NAME=VALUE"),
    ],
)
def test_mistakes_in_values_are_told_with_line_and_fix(line: str, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        list(only(line).pairs({}))
    assert message in caught.value.message


@given(st.text(alphabet=st.sampled_from("FROM RUN COPY ENV a$x{}:-'\"\\`#<E\n\t=[]"), max_size=200))
def test_any_text_is_understood_or_refused(text: str) -> None:
    with contextlib.suppress(InvalidRequest):
        file = parse(f"FROM a\n{text}")
        for instruction in file.stages[-1].instructions:
            instruction.words({"x": "1"})
            if instruction.name == "ENV":
                list(instruction.pairs({}))
