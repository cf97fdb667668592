"""mini-terminal: one bash that stays, whatever commands do to it."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from aenv import Context, ToolError
from aenv.inside.zygote.purity import is_same_for_all
from tests.envs.shells import ENVIRONMENTS, example, module, native_gateway, post, result_of

terminals = module("mini_terminal", "mini_terminal")
files = module("mini_terminal", "mini_terminal_files")
outputs = module("mini_terminal", "mini_terminal_output")

Run = Callable[..., Awaitable[tuple[str, bool, int]]]


@pytest.fixture
def context(tmp_path: Path) -> Context:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    return Context(workspace=workspace, variables={"PATH": os.environ["PATH"], "AENV_WORKSPACE": str(workspace)})


@pytest.fixture
async def terminal(context: Context) -> AsyncIterator[Any]:
    terminal = terminals.Terminal(context)
    yield terminal
    await terminal.end()


@pytest.fixture
def run(terminal: Any) -> Run:
    async def run(command: str, timeout: float = 20) -> tuple[str, bool, int]:
        said = await terminals.execute_command(terminal, command, timeout)
        assert set(said) == {"output", "returncode"}
        return said["output"][0], said["output"][1], said["returncode"]

    return run


async def test_a_command_gives_what_it_printed_in_order_and_its_exit_code(run: Run) -> None:
    assert await run("echo out; echo err >&2; echo more; (exit 7)") == ("out\nerr\nmore\n", True, 7)
    assert await run("no-such-program") == ("bash: no-such-program: command not found\n", True, 127)
    assert await run("bash -c 'kill -TERM $$' 2> /dev/null") == ("Terminated\n", True, 143)


async def test_folder_variables_functions_and_the_last_code_stay(run: Run, context: Context) -> None:
    assert (await run("pwd"))[0] == f"{context.workspace}\n"
    await run("mkdir sub && cd sub; x=5; greet() { echo hello $1; }; export y=6")
    assert await run("basename $PWD; echo $x; greet you; bash -c 'echo $y'; false") == (
        "sub\n5\nhello you\n6\n",
        True,
        1,
    )
    assert await run("echo $?") == ("1\n", True, 0)


@pytest.mark.parametrize(
    ("command", "text", "code"),
    [
        ("cat <<EOF\nline $((1 + 1))\nEOF", "line 2\n", 0),
        ("for i in 1 2\ndo\n  echo $i\ndone", "1\n2\n", 0),
        ("echo ünï 日本 😀", "ünï 日本 😀\n", 0),
        (r"printf 'a\xff\xfeb'", "a��b", 0),
        ("", "", 0),
        ("# only a remark", "", 0),
        ("echo a \\", "a\n", 0),
        ("return 9", "", 9),
        ("echo !! \"!x\" 'it''s'", "!! !x its\n", 0),
    ],
)
async def test_commands_of_every_form_run_as_in_a_script(run: Run, command: str, text: str, code: int) -> None:
    assert await run(command) == (text, True, code)


@pytest.mark.parametrize("command", ["echo 'one", 'echo "one', "if true", "echo $(", "cat <<EOF\nno end", ")"])
async def test_what_is_not_balanced_is_told_and_leaves_the_shell_usable(run: Run, command: str) -> None:
    await run("x=kept")
    _, finished, _ = await run(command)
    assert finished
    assert await run("echo $x") == ("kept\n", True, 0)


async def test_quotes_that_do_not_end_say_so(run: Run) -> None:
    text, _, code = await run("echo 'one")
    assert "unexpected EOF" in text and code == 2


async def test_no_terminal_is_behind_the_output_and_nothing_of_ours_is_open_in_a_program(run: Run) -> None:
    assert await run("test -t 1 || test -t 2") == ("", True, 1)
    text, _, _ = await run("ls /proc/self/fd")
    assert set(text.split()) <= {"0", "1", "2", "3", "93"}  # 93 is the command's own text, read to its end


async def test_a_command_that_takes_too_long_goes_on_and_the_next_one_works_in_the_same_shell(run: Run) -> None:
    await run("x=kept; cd /")
    assert await run("echo begun; sleep 1000; echo never", timeout=0.3) == ("begun\n", False, 124)
    assert await run("echo $x $PWD") == ("kept /\n", True, 0)
    assert await run("while true; do sleep 0.05; echo on; done > /dev/null", timeout=0.3) == ("", False, 124)
    assert await run("echo $x") == ("kept\n", True, 0)


async def test_a_program_that_ignores_interrupts_is_killed_for_the_next_command(run: Run) -> None:
    await run("x=kept")
    assert await run("bash -c 'trap \"\" INT; while true; do sleep 1000; done'", timeout=0.3) == ("", False, 124)
    assert await run("echo $x") == ("kept\n", True, 0)


async def test_a_shell_that_cannot_be_interrupted_is_replaced_with_a_notice(run: Run) -> None:
    assert await run("x=lost; trap '' INT; while :; do :; done", timeout=0.3) == ("", False, 124)
    text, finished, code = await run("echo [$x]")
    assert "started anew" in text and text.endswith("\n[]\n") and (finished, code) == (True, 0)


async def test_background_processes_hold_nothing_up_and_live_on(run: Run) -> None:
    text, finished, code = await run("sleep 1000 & echo $!")
    assert (finished, code) == (True, 0)
    assert psutil.pid_exists(int(text))
    assert (await run("jobs"))[0].endswith("sleep 1000 &\n")
    assert await run("kill %1; wait %1 2> /dev/null") == ("", True, 143)


async def test_exit_gives_its_code_and_the_next_command_gets_a_fresh_shell(run: Run, context: Context) -> None:
    await run("cd /; x=gone")
    assert await run("echo bye; exit 3") == ("bye\n", True, 3)
    assert await run("echo [$x]; pwd") == (f"[]\n{context.workspace}\n", True, 0)


@pytest.mark.parametrize(
    ("command", "text", "code"),
    [
        ("set -e; false; echo no", "", 1),
        ("set -eu; echo $undefined; echo no", "bash: undefined: unbound variable\n", 1),
        ("exec echo replaced", "replaced\n", 0),
        ("kill -9 $$", "", 137),
        ("trap 'echo at the end' EXIT; exit 4", "at the end\n", 4),
    ],
)
async def test_what_ends_a_shell_ends_only_that_one(run: Run, command: str, text: str, code: int) -> None:
    assert await run(command) == (text, True, code)
    assert await run("echo next") == ("next\n", True, 0)


@pytest.mark.parametrize(
    "command",
    [
        "exec > /dev/null 2>&1",
        "exec < /dev/null",
        "exec 2>&- 1>&-",
        "trap 'exit 9' DEBUG; trap - DEBUG",
        "trap 'echo trapped >&2' ERR RETURN; trap - ERR RETURN",
        "set -x; set +x",
        "set -u; set -o pipefail; set -f; IFS=0123456789abcdef",
        "set -o posix",
        "set -r",
        "PS1='prompt> '; PROMPT_COMMAND='echo prompt'; PS4=x",
        'printf() { command echo fake; }; echo() { command echo "$@"; }; true',
        "alias builtin=false printf=false; shopt -s expand_aliases",
        "stty -icanon raw 2> /dev/null; true",
        "unset PATH HOME IFS",
    ],
)
async def test_no_trick_breaks_the_next_command(run: Run, command: str) -> None:
    assert (await run(command))[1]
    assert await run("echo next; (exit 5)") == ("next\n", True, 5)
    assert await run("echo next") == ("next\n", True, 0)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["builtin() { :; }", "ulimit -n 20", "kill -STOP $$"])
async def test_a_shell_that_cannot_answer_any_more_costs_one_timeout(run: Run, command: str) -> None:
    assert (await run(command, timeout=0.3))[1:] == (False, 124)
    assert (await run("echo next"))[0].endswith("next\n")


async def test_nothing_that_is_printed_is_taken_for_the_end(run: Run, terminal: Any) -> None:
    # The form of the line that tells the end, with every token that a command could have seen, everywhere.
    tokens = "0123456789abcdef0123456789abcdef $BASHPID '' $(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' ')"
    spoof = f"for t in {tokens}; do for n in 1 2 3 90 91 92; do echo $t 0 himBs >&$n; done; done 2> /dev/null"
    text, finished, code = await run(f"{spoof}; sleep 0.1; echo last; (exit 6)")
    assert text.endswith("last\n") and (finished, code) == (True, 6)
    assert await run("echo next") == ("next\n", True, 0)


async def test_programs_that_read_wait_for_input_and_do_not_eat_the_next_command(run: Run, terminal: Any) -> None:
    assert await run("cat; echo code $?", timeout=0.3) == ("", False, 124)
    said = await terminals.send_input(terminal, "one\ntwo\n", 0.3)
    assert said == {"output": ["one\ntwo\n", False], "returncode": 124}
    said = await terminals.send_input(terminal, "\x04", 20)
    assert said == {"output": ["code 0\n", True], "returncode": 0}
    assert await run("cat", timeout=0.2) == ("", False, 124)
    assert await run("echo next") == ("next\n", True, 0)


async def test_what_a_program_was_sent_and_did_not_read_is_not_read_by_the_next_command(
    run: Run, terminal: Any
) -> None:
    assert await run("sleep 1000", timeout=0.2) == ("", False, 124)
    with pytest.raises(ToolError, match="does not read what it was sent"):  # as much as a terminal takes, and more
        await terminals.send_input(terminal, ("x" * 1000 + "\n") * 100, 0.2)
    assert await run("read -t 0.2 line; echo [$line]") == ("[]\n", True, 0)


@pytest.mark.parametrize(("end", "code"), [("(exit 6)", 6), ("exit 3", 3)])
async def test_a_command_that_has_ended_since_its_timeout_is_told_of_by_the_next_look_at_it(
    run: Run, terminal: Any, context: Context, end: str, code: int
) -> None:
    os.mkfifo(context.workspace / "go")
    assert await run(f"read < go; echo done; {end}", timeout=0.2) == ("", False, 124)
    await asyncio.to_thread((context.workspace / "go").write_text, "\n")
    await terminal._shell.ended(20)
    assert await terminals.send_input(terminal, "late\n") == {"output": ["done\n", True], "returncode": code}
    with pytest.raises(ToolError, match="nothing is running"):
        await terminals.interrupt(terminal)


async def test_what_a_shell_said_before_it_ended_comes_with_the_next_command(
    run: Run, terminal: Any, context: Context
) -> None:
    os.mkfifo(context.workspace / "go")
    assert await run("read < go; echo bye; exit 3", timeout=0.2) == ("", False, 124)
    await asyncio.to_thread((context.workspace / "go").write_text, "\n")
    await terminal._shell.gone()
    assert await run("echo next") == ("bye\nnext\n", True, 0)


async def test_a_running_command_can_be_fed_and_interrupted_while_it_is_waited_for(
    run: Run, terminal: Any, context: Context
) -> None:
    fifo = context.workspace / "begun"
    os.mkfifo(fifo)
    waiting = asyncio.create_task(run(f"echo > {fifo}; read line; echo got $line; sleep 1000; echo never"))
    await asyncio.to_thread(fifo.read_text)
    assert (await terminals.send_input(terminal, "this\n"))["output"] == ["", False]
    assert files.list_files(context)["entries"] == [{"name": "begun", "type": "other", "size": 0}]
    while "sleep" not in {child.name() for child in psutil.Process().children(recursive=True)}:
        await asyncio.sleep(0)
    await terminals.interrupt(terminal)
    assert await waiting == ("got this\n", True, 130)


async def test_a_caller_that_goes_away_leaves_a_shell_that_works(run: Run, context: Context) -> None:
    os.mkfifo(context.workspace / "begun")
    # Told by the program itself: an interrupt while the shell is about to start one is another matter.
    waiting = asyncio.create_task(run("x=kept; (echo > begun; exec sleep 1000)"))
    await asyncio.to_thread((context.workspace / "begun").read_text)
    waiting.cancel()
    await asyncio.wait({waiting})
    assert await run("echo $x") == ("kept\n", True, 0)


async def test_feeding_and_interrupting_nothing_is_an_error_that_says_so(terminal: Any) -> None:
    with pytest.raises(ToolError, match="nothing is running"):
        await terminals.send_input(terminal, "x\n")
    with pytest.raises(ToolError, match="nothing is running"):
        await terminals.interrupt(terminal)


async def test_commands_at_the_same_time_run_one_after_the_other(run: Run) -> None:
    await run("n=0")
    done = await asyncio.gather(*(run("n=$((n + 1)); echo $n") for _ in range(5)))
    assert sorted(text for text, _, _ in done) == [f"{n}\n" for n in range(1, 6)]


async def test_endless_output_is_capped_in_memory_with_the_beginning_the_end_and_a_notice(run: Run) -> None:
    text, finished, code = await run("echo first; head -c 25000000 /dev/zero | tr '\\0' x; echo; echo last")
    assert (finished, code) == (True, 0)
    assert text.startswith("first\nxxx") and text.endswith("xxx\nlast\n")
    assert "[output capped: 15000012 of 25000012 bytes are left out here]" in text
    assert len(text) < 10_000_200


def test_capped_output_never_holds_more_than_its_bound() -> None:
    output = outputs.CappedOutput(1000)
    for _ in range(5000):
        output.add(b"x" * 100)
        assert len(output._head) + len(output._tail) <= 1600
    text = output.take(is_all=True)
    assert text.count("x") == 1000 and "499000 of 500000" in text


def test_a_character_that_has_begun_waits_for_its_end() -> None:
    output = outputs.CappedOutput()
    output.add("ü".encode()[:1])
    assert output.take(is_all=False) == ""
    output.add("ü".encode()[1:])
    assert output.take(is_all=True) == "ü"


async def test_ten_megabytes_of_binary_make_a_reply_that_fits(run: Run) -> None:
    text, finished, _ = await run("head -c 20000000 /dev/zero")
    assert finished and set(text[:1000]) == {"�"}
    assert (await run("head -c 3 /dev/zero"))[0] == "\0\0\0"


async def test_commands_and_timeouts_that_make_no_sense_are_refused_by_name(terminal: Any) -> None:
    with pytest.raises(ToolError, match="'command' has a NUL"):
        await terminals.execute_command(terminal, "echo a\0b")
    with pytest.raises(ToolError, match="'command' is not text"):
        await terminals.execute_command(terminal, "echo \ud800")
    for timeout in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ToolError, match="'timeout' is a number of seconds above 0"):
            await terminals.execute_command(terminal, "true", timeout)
    with pytest.raises(ToolError, match="5000 bytes does not fit"):
        await terminals.send_input(terminal, "x" * 5000)


async def test_a_long_command_gets_through(run: Run) -> None:
    assert await run(f"# {'x' * 300_000}\necho through") == ("through\n", True, 0)


async def test_reset_ends_every_process_and_empties_the_workspace(
    run: Run, terminal: Any, context: Context, tmp_path: Path
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "precious").touch()
    text, _, _ = await run(
        "mkdir -p deep/er; touch deep/er/f .hidden; chmod 0 deep/er; ln -s ../outside link; sleep 999 & echo $!"
    )
    process = psutil.Process(int(text))
    waiting = asyncio.create_task(run("sleep 1000"))
    while len(psutil.Process().children(recursive=True)) < 3:
        await asyncio.sleep(0)
    assert (await terminals.reset(context, terminal))["emptied"]
    assert (await waiting)[1:] == (True, 137)
    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    assert list(context.workspace.iterdir()) == [] and (tmp_path / "outside" / "precious").exists()
    assert await run("echo fresh $PWD") == (f"fresh {context.workspace}\n", True, 0)


@pytest.mark.parametrize(
    "command",
    [
        "rm -r $PWD",
        "cd /; mv {folder} {folder}2; ln -s {outside} {folder}",
        "cd /; rm -r {folder}; : > {folder}",
        "chmod 0 .",
    ],
)
async def test_whatever_became_of_the_workspace_reset_gives_an_empty_one(
    run: Run, terminal: Any, context: Context, tmp_path: Path, command: str
) -> None:
    # A folder of the test's own: where a link is followed, what it leads to is lost.
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").touch()
    await run("touch file")
    assert (await run(command.format(folder=context.workspace, outside=outside)))[2] == 0
    assert (await terminals.reset(context, terminal))["emptied"]
    assert await run("pwd; ls -A; touch new") == (f"{context.workspace}\n", True, 0)
    assert not context.workspace.is_symlink() and (outside / "precious").exists()


async def test_a_new_shell_makes_the_workspace_that_a_command_has_removed(run: Run, context: Context) -> None:
    await run("rm -r $PWD; exit")
    assert await run("pwd; touch new") == (f"{context.workspace}\n", True, 0)


async def test_reset_leaves_a_folder_alone_that_is_not_the_instances_own(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    context = Context(workspace=tmp_path, variables={"PATH": os.environ["PATH"]})
    assert not (await terminals.reset(context, terminals.Terminal(context)))["emptied"]
    assert (tmp_path / "precious").exists()


class TestFiles:
    def test_what_is_written_is_read_as_text_bytes_and_parts(self, context: Context) -> None:
        said = files.write_file(context, "a/b.txt", "hällo")
        assert said == {"path": str(context.workspace / "a/b.txt"), "bytes": 6}
        files.write_file(context, "a/b.txt", " you", append=True)
        assert files.read_file(context, "a/b.txt") == "hällo you"
        assert files.read_file(context, "a/b.txt", offset=7, limit=2) == "yo"
        files.write_file(context, "raw", base64.b64encode(b"\xff\x00").decode(), encoding="base64")
        assert files.read_file(context, "raw") == b"\xff\x00"
        assert files.read_file(context, "raw", encoding="text") == "�\0"
        assert files.read_file(context, "raw", encoding="base64") == "/wA="

    def test_a_folder_is_listed_by_name_and_links_are_not_followed(self, context: Context) -> None:
        files.write_file(context, "b/c.txt", "123")
        (context.workspace / "a").symlink_to("/")
        listed = files.list_files(context, recursive=True)
        assert [(one["name"], one["type"]) for one in listed["entries"]] == [
            ("a", "link"),
            ("b", "folder"),
            ("b/c.txt", "file"),
        ]
        assert listed["entries"][2]["size"] == 3 and not listed["truncated"]

    def test_long_lists_and_large_files_are_cut_or_refused_with_the_way_out(self, context: Context) -> None:
        for number in range(1001):
            (context.workspace / f"{number:04}").touch()
        listed = files.list_files(context)
        assert len(listed["entries"]) == 1000 and listed["truncated"]
        with open(context.workspace / "large", "wb") as large:
            large.truncate(10_000_001)
        with pytest.raises(ToolError, match="'offset' and 'limit'"):
            files.read_file(context, "large")
        assert len(files.read_file(context, "large", limit=10)) == 10

    def test_what_cannot_be_read_or_written_says_what_and_why(self, context: Context) -> None:
        os.mkfifo(context.workspace / "pipe")
        for call, words in (
            (lambda: files.read_file(context, "none"), "'none' does not exist"),
            (lambda: files.read_file(context, "."), "is not a file"),
            (lambda: files.read_file(context, "pipe"), "is not a file"),
            (lambda: files.write_file(context, "pipe", "x"), "'pipe': no such device"),
            (lambda: files.read_file(context, "a\0b"), "null"),
            (lambda: files.write_file(context, "x", "@", encoding="base64"), "'content' is not base64"),
            (lambda: files.list_files(context, "none"), "'none' does not exist"),
            (lambda: files.read_file(context, "x", offset=-1), "'offset'"),
        ):
            with pytest.raises(ToolError, match=words):
                call()


def test_it_is_loaded_once_for_all_instances() -> None:
    assert is_same_for_all(str(ENVIRONMENTS / "mini_terminal" / "src"))


@pytest.mark.slow
async def test_an_instance_runs_commands_feeds_them_and_starts_over(tmp_path: Path) -> None:
    async with native_gateway(tmp_path / "home", "mini_terminal") as gateway:
        id = (await gateway.create("mini-terminal@1.0.1"))["id"]
        said = await result_of(gateway, id, "execute_command", command="echo helloworld", timeout=5)
        assert said["content"] == [{"type": "text", "text": '{"output":["helloworld\\n",true],"returncode":0}'}]
        text = (await gateway.call(id, "execute_command", command="ls /proc/self/fd; pwd; id -u"))["output"][0]
        assert text.split()[-2:] == ["/workspace", "0"] and set(text.split()[:-2]) <= {"0", "1", "2", "3", "93"}
        assert (await gateway.call(id, "execute_command", command="cat", timeout=0.2))["output"] == ["", False]
        assert (await gateway.call(id, "send_input", text="hi\n", timeout=0.2))["output"] == ["hi\n", False]
        assert (await gateway.call(id, "interrupt"))["returncode"] == 130
        # A process whose parent has ended is the runtime's to collect.
        await gateway.call(id, "execute_command", command="(sleep 0 & echo $! > orphan)")
        seen = "test -e /proc/$(cat orphan)"
        while (await gateway.call(id, "execute_command", command=seen))["returncode"] == 0:
            pass
        await gateway.call(id, "execute_command", command="(setsid sleep 1000 &); touch file")
        assert (await post(gateway, id, "/task/reset"))["emptied"]
        left = await gateway.call(id, "execute_command", command="ls -A; cat /proc/[0-9]*/comm | grep -c sleep")
        assert left["output"][0] == "0\n"
        assert "you said yes" in await example(gateway, "mini_terminal")


@pytest.mark.slow  # replies of 60 MB
@pytest.mark.timeout(120)
async def test_the_largest_reply_of_every_kind_of_bytes_reaches_the_client(tmp_path: Path) -> None:
    async with native_gateway(tmp_path / "home", "mini_terminal") as gateway:
        id = (await gateway.create("mini-terminal@1.0.1"))["id"]
        for source in ("cat /dev/urandom", "cat /dev/zero", "yes '\"'", "yes '\\'"):
            said = await gateway.call(id, "execute_command", command=f"{source} | head -c 20000000")
            assert "[output capped: 10000000 of 20000000 bytes" in said["output"][0]
