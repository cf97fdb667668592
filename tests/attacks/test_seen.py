"""What another user of the host sees of a gateway's instances: no id that opens one, and no token."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
from collections.abc import Iterator

import pytest

from tests.attacks.served import Served, served
from tests.ordinary import OrdinaryUser

CODE = '''
import http.server, threading

from aenv import register_tool


@register_tool
def listen() -> int:
    """Serve a port."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port
'''
WAIT = "touch began; while [ ! -e end ]; do sleep 0.05; done"
# Run by the other user, who is told what to look for: everything that the kernel and the folders show.
LOOK = r"""
import json, os, sys

wanted = json.load(sys.stdin)
found = set()


def seen(place, text):
    found.update((place, what) for what, secret in wanted.items() if secret in text)


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read(4 << 20).decode("utf-8", "replace")
    except OSError:
        return ""


for pid in filter(str.isdigit, os.listdir("/proc")):
    for name in ("cmdline", "cgroup", "comm", "mountinfo", "mounts", "environ", "maps", "status", "stat"):
        seen(f"/proc/PID/{name}", read(f"/proc/{pid}/{name}"))
    for name in ("cwd", "root", "exe"):
        try:
            seen(f"/proc/PID/{name}", os.readlink(f"/proc/{pid}/{name}"))
        except OSError:
            pass
for name in ("net/unix", "mounts", "locks", "keys"):
    seen(f"/proc/{name}", read(f"/proc/{name}"))
for top in sys.argv[1:]:
    for where, folders, files in os.walk(top):
        for name in (*folders, *files):
            seen("names", os.path.join(where, name))
        for name in files if top != "/sys/fs/cgroup" else ():
            path = os.path.join(where, name)
            if os.path.isfile(path):
                seen("contents of " + name, read(path))
print(json.dumps(sorted(found)))
"""


@pytest.fixture(scope="module", params=["root", "user"])
def gateway(request: pytest.FixtureRequest, user: OrdinaryUser) -> Iterator[Served]:
    with served(user if request.param == "user" else None, accounts=True, projects=[]) as gateway:
        done = gateway.push(gateway.project("busy", code=CODE), token=gateway.tokens["a"])
        assert done.returncode == 0, done.stderr
        yield gateway


def seen_by_another(gateway: Served, user: OrdinaryUser, wanted: dict[str, str]) -> list[list[str]]:
    id = str(user.id + 1000)
    become = ["setpriv", "--reuid", id, "--regid", id, "--clear-groups", "env", "-i", str(user.python), "-c", LOOK]
    command = [*become, str(gateway.folder), "/run", "/dev/shm", "/sys/fs/cgroup"]
    done = subprocess.run(command, input=json.dumps(wanted), capture_output=True, text=True, check=True)
    found: list[list[str]] = json.loads(done.stdout)
    return found


def test_nothing_that_opens_an_instance_is_seen_by_another_user(gateway: Served, user: OrdinaryUser) -> None:
    token = gateway.tokens["a"]
    made = {by: gateway.create("busy", token=token, by=by) for by in ("PUT", "POST")}
    made["limited"] = gateway.create("busy", token=token, resources={"memory": "64Mi"})
    wanted = {f"id by {by}": one["id"] for by, one in made.items()}
    wanted |= {f"token by {by}": one["token"] for by, one in made.items()}
    wanted |= {f"token of {who}": token for who, token in gateway.tokens.items()}
    target = made["PUT"]
    port = gateway.call(target["id"], "listen", token=target["token"]).json["data"]["content"][0]["text"]
    reply = gateway.ask("POST", f"/env-instance/{target['id']}/presign-url", {"port": int(port)}, token=token)
    if reply.status == 200:
        wanted["token of a port"] = reply.data["url"].rpartition("/ports/")[2].strip("/")
        gateway.ask("GET", f"/ports/{wanted['token of a port']}/", data_port=True)
    wanted["text of a command"] = WAIT
    with running_command(gateway, target["id"]):
        assert seen_by_another(gateway, user, wanted) == []
        assert seen_by_another(gateway, user, {"a word": "served-"})  # it does look
    assert all(secret not in gateway.log for secret in wanted.values())
    assert target["id"][: target["id"].rindex("-") + 7] in gateway.log  # enough to find it in a list


@contextlib.contextmanager
def running_command(gateway: Served, id: str) -> Iterator[None]:
    """A command runs inside the instance; it ends when the workspace has the file `end`."""
    at, token = f"/env-instance/{id}", gateway.tokens["a"]
    command = threading.Thread(
        target=gateway.ask, args=("POST", f"{at}/exec", {"command": WAIT}), kwargs={"token": token}
    )
    command.start()
    try:
        while gateway.ask("GET", f"{at}/files/began", token=token).status != 200:
            pass
        yield
    finally:
        gateway.ask("PUT", f"{at}/files/end", b"", token=token)
        command.join()
