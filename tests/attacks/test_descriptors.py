"""What an instance finds open: nothing but what is meant."""

from __future__ import annotations

import json
import os
import socket
from collections import Counter
from typing import Any

import pytest

from tests.attacks import names
from tests.attacks.engines import AttackedEngine
from tests.attacks.outside import Outside

LIST = "import sys; sys.path.insert(0, '/environment/programs'); import descriptors; said = descriptors.listing()"


@pytest.mark.parametrize("how", ["tool", "exec"])
@pytest.mark.parametrize("name", names("descriptors"))
def test_an_attack_by_open_files_is_contained(
    engine: AttackedEngine, instance: str, given: dict[str, Any], name: str, how: str
) -> None:
    verdict = engine.attack(instance, "descriptors", [name], given, how)[name]
    assert verdict["succeeded"] is False, verdict["said"]


@pytest.mark.parametrize("engine", ["root"], indirect=True)
@pytest.mark.parametrize("leaked", ["file", "folder"])
def test_a_file_or_folder_that_was_left_open_leads_out(
    outside: Outside, host: dict[str, Any], leaked: str
) -> None:
    path = host["secret"] if leaked == "file" else "/"
    descriptor = os.open(path, os.O_RDONLY)
    try:
        # In a file system without the secret's path, as inside.
        root = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && shift 0 && exec "$@"']
        wrapper = [*root, os.path.dirname(host["secret"])] if leaked == "file" else []
        outside.attack("descriptors", "use_open_files", wrapper, [descriptor])
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("engine", ["root"], indirect=True)
def test_the_peer_of_a_socket_can_be_used_outside(outside: Outside) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        outside.attack("descriptors", "use_peer_process", pass_fds=[theirs.fileno()])


def test_a_tool_finds_only_its_log_its_listener_and_what_its_own_loop_made(
    engine: AttackedEngine, instances: Any
) -> None:
    found = engine.evaluate(instances(), LIST)
    assert (found["0"], found["1"], found["2"]) == ("/dev/null", "/var/log/instance.log", "/var/log/instance.log")
    rest = Counter(text for number, text in found.items() if number not in "012" and text != "gone")
    assert rest.pop("AF_UNIX listening") == 1
    assert rest.pop("AF_UNIX connection") == 1  # of this call
    # The loop's: how it waits, and how signals and threads wake it. Nothing with a name.
    own = {"anon_inode:[eventpoll]", "anon_inode:[eventfd]", "pipe", "AF_UNIX own", "/dev/null"}
    assert set(rest) <= own, rest


def test_a_command_finds_only_its_three_streams(engine: AttackedEngine, instance: str) -> None:
    code = f"{LIST}; import json; print(json.dumps(said))"
    found = json.loads(engine.ask("exec", id=instance, command=["python3", "-c", code])["stdout"])
    assert {number for number, text in found.items() if text != "gone"} == {"0", "1", "2"}
    assert (found["1"], found["2"]) == ("pipe", "pipe")
