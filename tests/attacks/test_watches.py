"""What the kernel counts by user, taken by one instance: epoll watches, inotify instances, pages of pipes.

An ordinary user's gateway has the same user as its instances, so these pools are the gateway's own.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from aenv.control.serving.loops import SteadySelector, new_steady_loop
from tests.attacks.served import Served, served
from tests.gateways import make_project
from tests.ordinary import OrdinaryUser

GREEDY = '''
import errno, fcntl, os, select

from aenv import register_tool


@register_tool
def take_watches() -> int:
    """All epoll watches that there are, held by processes that stay."""
    taken = 0
    while True:
        reading, writing = os.pipe()
        if os.fork() == 0:
            os.close(reading)
            count, full, polls = 0, False, []
            events = [os.eventfd(0) for _ in range(2000)]
            try:
                while True:
                    polls.append(select.epoll())
                    for event in events:
                        polls[-1].register(event, 0)
                        count += 1
            except OSError as error:
                full = error.errno == errno.ENOSPC
            os.write(writing, f"{count} {int(full)}".encode())
            spare = [os.eventfd(0)]
            while full:  # whatever anybody gives back is taken at once
                try:
                    polls[-1].register(spare[-1], 0)
                    spare.append(os.eventfd(0))
                except OSError:
                    select.select([], [], [], 0.0001)
            select.select([], [], [])
        os.close(writing)
        count, full = os.read(reading, 100).split()
        os.close(reading)
        taken += int(count)
        if full == b"1":
            return taken


@register_tool
def take_pipes() -> int:
    """Pages of pipes beyond what a user may have; from then on a new pipe has one or two."""
    global PIPES
    PIPES, sizes = [], []
    try:
        while True:
            PIPES.append(os.pipe())
            fcntl.fcntl(PIPES[-1][1], fcntl.F_SETPIPE_SZ, 1 << 20)
    except OSError:
        pass
    try:
        while True:
            PIPES.append(os.pipe())
            sizes.append(fcntl.fcntl(PIPES[-1][1], fcntl.F_GETPIPE_SZ))
            if sizes[-1] < 65536:
                break
    except OSError:
        pass
    return min(sizes, default=0)
'''


@pytest.fixture
def gateway(user: OrdinaryUser, tmp_path: Path) -> Iterator[Served]:
    projects = [make_project(tmp_path), make_project(tmp_path, "greedy", code=GREEDY)]
    # With one worker the connection to the neighbour is kept, and needs no watch.
    with served(user, arguments=("--workers", "1"), projects=projects) as gateway:
        yield gateway


@pytest.mark.timeout(120)  # millions of watches
def test_a_users_gateway_goes_on_while_an_instance_holds_every_epoll_watch(gateway: Served) -> None:
    neighbour, greedy = gateway.create()["id"], gateway.create("greedy@1.0.0")["id"]
    assert gateway.call(neighbour, "echo", text="before").status == 200
    taken = gateway.call(greedy, "take_watches").json
    assert taken["data"]["is_error"] is False, taken
    for _ in range(20):  # each is a connection that epoll would have to take
        assert gateway.ask("GET", "/health").status == 200
        assert gateway.ask("GET", "/env-instance/*/list").status == 200
        assert gateway.call(neighbour, "echo", text="still here").status == 200
    assert gateway.ask("DELETE", f"/env-instance/{greedy}").status == 200
    assert gateway.call(gateway.create()["id"], "echo", text="after").status == 200


@pytest.mark.timeout(120)  # millions of watches
def test_an_instance_lives_on_while_another_holds_every_epoll_watch_of_their_user(
    user: OrdinaryUser, tmp_path: Path
) -> None:
    projects = [make_project(tmp_path), make_project(tmp_path, "greedy", code=GREEDY)]
    with served(user, arguments=("--workers", "3"), projects=projects) as gateway:
        neighbour, greedy = gateway.create()["id"], gateway.create("greedy@1.0.0")["id"]
        assert gateway.call(neighbour, "echo", text="before").status == 200
        assert gateway.call(greedy, "take_watches").json["data"]["is_error"] is False
        # Workers without a connection to the neighbour make one, for which it has no watch.
        replies = [gateway.call(neighbour, "echo", text="meanwhile") for _ in range(30)]
        assert {reply.status for reply in replies} <= {200, 503}
        assert any(reply.status == 503 and b"no epoll watches left" in reply.body for reply in replies)
        assert gateway.ask("DELETE", f"/env-instance/{greedy}").status == 200
        assert gateway.ask("GET", f"/env-instance/{neighbour}").data["status"] == "Running"
        while (reply := gateway.call(neighbour, "echo", text="after")).status == 503:
            pass  # the kernel gives watches back when the last process has ended
        assert reply.status == 200


@pytest.mark.timeout(120)  # millions of watches
def test_an_account_that_holds_every_epoll_watch_of_its_instances_takes_none_of_another_account(
    tmp_path: Path,
) -> None:
    with served(accounts=True, projects=[make_project(tmp_path, "greedy", code=GREEDY)]) as gateway:
        greedy = gateway.create("greedy@1.0.0", token=gateway.tokens["a"])["id"]
        taken = gateway.call(greedy, "take_watches").json
        assert taken["data"]["is_error"] is False, taken
        # An instance that cannot watch its own socket does not start.
        other = gateway.create("greedy@1.0.0", token=gateway.tokens["b"])["id"]
        assert gateway.call(other, "take_pipes").json["data"]["is_error"] is False
        assert gateway.ask("DELETE", f"/env-instance/{greedy}", token=gateway.tokens["a"]).status == 200


def test_a_users_gateway_goes_on_while_an_instance_holds_the_pages_of_pipes(gateway: Served) -> None:
    neighbour, greedy = gateway.create()["id"], gateway.create("greedy@1.0.0")["id"]
    assert gateway.call(greedy, "take_pipes").status == 200
    for _ in range(3):
        assert gateway.call(neighbour, "echo", text="x" * 500_000).status == 200
        reply = gateway.ask("POST", f"/env-instance/{neighbour}/exec", {"command": "head -c 300000 /dev/zero"})
        assert (reply.status, reply.body.count(b"\\u0000")) == (200, 300_000)
    assert gateway.call(gateway.create()["id"], "echo", text="after").status == 200


class Refusing(selectors.EpollSelector):
    """epoll, where the user has no watches left."""

    def register(self, fileobj: object, events: int, data: object = None) -> selectors.SelectorKey:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_the_selector_waits_for_what_epoll_refuses_and_for_all_else() -> None:
    selector, refusing = SteadySelector(), Refusing()
    before, during = socket.socketpair()
    with before, during:
        selector.register(before, selectors.EVENT_WRITE, "before")
        selector._epoll, kept = refusing, selector._epoll
        selector.register(during, selectors.EVENT_READ, "during")
        selector._epoll = kept
        assert {key.data for key in selector.get_map().values()} == {"before", "during"}
        assert [key.data for key, _ in selector.select()] == ["before"]
        selector.modify(during, selectors.EVENT_WRITE, "during")
        assert {key.data for key, _ in selector.select()} == {"before", "during"}
        assert selector.get_key(during).events == selectors.EVENT_WRITE
        with pytest.raises(KeyError):
            selector.register(during, selectors.EVENT_READ)
        assert selector.unregister(during).data == "during"
        assert selector.unregister(before).data == "before"
        assert selector.select(0) == []
    refusing.close()
    selector.close()


def test_a_loop_on_it_serves_connections_that_epoll_refuses() -> None:
    loop = new_steady_loop()
    ours, theirs = socket.socketpair()
    with ours, theirs, contextlib.closing(loop), contextlib.closing(Refusing()) as refusing:
        loop._selector._epoll.register = refusing.register  # type: ignore[attr-defined]
        got = loop.create_future()
        loop.add_reader(ours, lambda: got.set_result(ours.recv(5)))
        theirs.send(b"hello")
        assert loop.run_until_complete(got) == b"hello"
        loop.remove_reader(ours)
