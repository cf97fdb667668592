"""Attacks on files, and the tricks with links, logs and variables against what the engine does as the host."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.attacks import names
from tests.attacks.engines import AttackedEngine, Refused
from tests.attacks.outside import Outside

SWAP = """
import os, threading
os.makedirs("/workspace/swapped", exist_ok=True)
open("/workspace/swapped/secret", "w").write("own")
os.symlink({target!r}, "/workspace/other")
def swap():
    import ctypes
    exchange = ctypes.CDLL(None).renameat2
    while not kept:
        exchange(-100, b"/workspace/swapped", -100, b"/workspace/other", 2)
threading.Thread(target=swap, daemon=True).start()
"""


@pytest.fixture(scope="module")
def verdicts(engine: AttackedEngine, instance: str, given: dict[str, Any]) -> Any:
    """By how it is run; the token is also in another instance."""
    other = engine.ask("create", variables={"TOKEN": engine.token})["id"]
    engine.ask("put", id=other, path="token", text=engine.token)
    yield {how: engine.attack(instance, "files", names("files"), given, how) for how in ("tool", "exec")}
    engine.ask("destroy", id=other)


@pytest.mark.parametrize("how", ["tool", "exec"])
@pytest.mark.parametrize("name", names("files"))
def test_an_attack_on_files_is_contained(verdicts: Any, name: str, how: str) -> None:
    assert verdicts[how][name]["succeeded"] is False, verdicts[how][name]["said"]


@pytest.mark.parametrize("engine", ["root"], indirect=True)
@pytest.mark.parametrize("name", names("files"))
def test_an_attack_on_files_succeeds_outside(verdicts: Any, outside: Outside, name: str) -> None:
    outside.attack("files", name)


def test_no_lease_holds_up_who_reads_a_file(engine: AttackedEngine, instances: Any) -> None:
    id = instances()
    leased = engine.evaluate(
        id,
        """
        import fcntl, os
        open("/workspace/leased", "w").write("x")
        kept.append(os.open("/workspace/leased", os.O_RDWR))
        try:
            fcntl.fcntl(kept[0], fcntl.F_SETLEASE, fcntl.F_WRLCK)
            said = "leased"
        except OSError:
            said = "refused"
        """,
    )
    assert leased == "refused"
    assert engine.ask("read", id=id, path="leased") == "x"


def test_a_project_that_would_show_the_gateways_home_is_refused(engine: AttackedEngine) -> None:
    with pytest.raises(Refused, match="where all instances are kept"):
        engine.ask("create", project=str(engine.folder))
    link = engine.folder / "project" / "link"
    link.symlink_to(engine.folder)
    with pytest.raises(Refused, match="where all instances are kept"):
        engine.ask("create", project=str(link))
    link.unlink()


# Links in the workspace


def test_links_never_lead_the_engine_to_files_of_the_host(
    engine: AttackedEngine, instances: Any, host: dict[str, Any]
) -> None:
    id = instances()
    secret = Path(host["secret"])
    engine.evaluate(
        id,
        f"""
        import os
        os.symlink({str(secret)!r}, "/workspace/file")
        os.symlink({str(secret.parent)!r}, "/workspace/folder")
        os.symlink("/", "/workspace/root")
        """,
    )
    for path in ("file", "folder/secret", f"root{secret}"):
        with pytest.raises(Refused):
            engine.ask("read", id=id, path=path)
    for path in ("folder", "root"):
        with pytest.raises(Refused):
            engine.ask("list", id=id, path=path)
    for path in ("folder/written", f"root{secret.parent}/written"):
        with pytest.raises(Refused):
            engine.ask("put", id=id, path=path, text="x")
    with pytest.raises(Refused):
        engine.ask("remove", id=id, path="folder/secret")
    engine.ask("put", id=id, path="file", text="x")  # takes the link's place
    engine.ask("remove", id=id, path="folder")  # the link, not what it leads to
    assert secret.read_text() == engine.token
    assert os.listdir(secret.parent) == ["secret"]


def test_who_follows_links_below_an_instances_root_would_read_the_host(
    engine: AttackedEngine, instances: Any, host: dict[str, Any]
) -> None:
    created = engine.ask("create")
    engine.evaluate(created["id"], f"import os; os.symlink({host['secret']!r}, '/workspace/file')")
    with open(f"/proc/{created['pid']}/root/workspace/file") as file:  # as the host's root, the plain way
        assert file.read() == engine.token
    engine.ask("destroy", id=created["id"])


def test_a_folder_that_becomes_a_link_at_the_wrong_moment_shows_nothing_of_the_host(
    engine: AttackedEngine, instances: Any, host: dict[str, Any]
) -> None:
    id = instances()
    folder = Path(host["secret"]).parent
    engine.evaluate(id, SWAP.format(target=str(folder)))
    seen = set()
    for number in range(150):
        requests = [
            engine.start("read", id=id, path="swapped/secret"),
            engine.start("put", id=id, path=f"swapped/{number}", text="x"),
            engine.start("remove", id=id, path=f"swapped/{number}"),
        ]
        for request in requests:
            try:
                seen.add(str(engine.reply(request)))
            except Refused as error:
                seen.add(error.kind)
    engine.evaluate(id, "kept.append(True)")
    assert {"own", "InvalidRequest"} <= seen  # both sides of the race were met
    assert engine.token not in seen
    assert os.listdir(folder) == ["secret"]


# The log, and the file with the variables


LOGS = {
    "a link": "os.unlink(log); os.symlink(secret, log)",
    "a fifo": "os.unlink(log); os.mkfifo(log)",
    "a folder": "os.unlink(log); os.mkdir(log)",
    "gone": "os.unlink(log)",
    "below a link": "shutil.rmtree('/var/log'); os.symlink(os.path.dirname(secret), '/var/log')",
    "long and empty": "os.truncate(log, 1 << 24)",
}


@pytest.mark.parametrize("trick", LOGS)
def test_a_log_that_became_something_else_harms_nobody(
    engine: AttackedEngine, instances: Any, host: dict[str, Any], trick: str
) -> None:
    id = instances()
    code = f"import os, shutil; log = '/var/log/instance.log'; secret = {host['secret']!r}; {LOGS[trick]}"
    engine.evaluate(id, code)
    try:
        said = engine.ask("log_text", id=id)
    except Refused as error:
        said = error.kind
    assert engine.token not in said
    assert said in ("InvalidRequest", "NotFound") or (trick == "long and empty" and said.endswith("\0"))
    assert engine.evaluate(id, "said = 'alive'") == "alive"


VARIABLES = {
    "a link": "os.unlink(file); os.symlink(secret, file)",
    "a fifo": "os.unlink(file); os.mkfifo(file); kept.append(os.open(file, os.O_RDWR))",
    "a folder": "os.unlink(file); os.mkdir(file)",
    "nonsense": "open(file, 'w').write('[' * 100_000)",
    "no text": "open(file, 'wb').write(bytes(range(256)))",
    "names that cannot be": r"open(file, 'w').write('{\"PATH\": \"/usr/bin\", \"a=b\": \"\\u0000\", \"\": 1}')",
    "without end": "os.truncate(file, 1 << 40)",
}


@pytest.mark.parametrize("trick", VARIABLES)
def test_variables_that_became_something_else_leave_commands_working(
    engine: AttackedEngine, instances: Any, host: dict[str, Any], trick: str
) -> None:
    id = instances()
    code = f"import os; file = '/run/variables.json'; secret = {host['secret']!r}; {VARIABLES[trick]}"
    engine.evaluate(id, code)
    said = engine.ask("exec", id=id, command=["sh", "-c", "echo works; env"], timeout=3)
    assert (said["code"], said["stdout"].splitlines()[0], said["stderr"]) == (0, "works", ""), said
    assert engine.token not in said["stdout"]


def test_variables_cannot_make_a_command_run_code_before_it_is_confined(
    engine: AttackedEngine, instances: Any
) -> None:
    id = instances()
    engine.evaluate(
        id,
        """
        import json, os
        os.mkdir("/workspace/bin")
        open("/workspace/sitecustomize.py", "w").write("import os; os.environ['EARLY'] = '1'")
        variables = {"PATH": "/workspace/bin", "PYTHONPATH": "/workspace", "LD_PRELOAD": "/workspace/x.so"}
        open("/run/variables.json", "w").write(json.dumps(variables))
        """,
    )
    said = engine.ask("exec", id=id, command=["/bin/cat", "/proc/self/status"])
    fields = dict(line.split(":\t", 1) for line in said["stdout"].splitlines() if ":\t" in line)
    assert (fields["Seccomp"], fields["NoNewPrivs"], int(fields["CapBnd"], 16)) == ("2", "1", 0)
