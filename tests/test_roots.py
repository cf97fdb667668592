"""Roots: what an instance sees as `/`, from the host, an image or a Dockerfile."""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import json
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from aenv.config import Project, load_project
from aenv.errors import InvalidRequest, NotFound, StartFailed
from aenv.roots import store
from aenv.roots.build import build
from aenv.roots.copying import chosen, items
from aenv.roots.host import host_root
from aenv.roots.packages import packages_layer
from aenv.roots.roots import Roots
from aenv.roots.steps import RunCommand, State, Steps
from aenv.roots.unpacking import Limits
from aenv.roots.view import View
from aenv.sandbox.root import Root
from tests.saved_images import busybox, docker_archive, file, folder, layer, link


class FakeRun:
    """Commands that need no sandbox: `write PATH TEXT`, `remove PATH`, `fail`; and what they were given."""

    def __init__(self) -> None:
        self.seen: list[tuple[tuple[str, ...], Mapping[str, str], str, str, bool]] = []
        self.roots: list[Root] = []

    async def __call__(
        self,
        root: Root,
        command: Sequence[str],
        *,
        upper: Path,
        variables: Mapping[str, str],
        folder: str,
        user: str = "",
        network: bool,
        on_line: Callable[[str], None],
    ) -> int:
        self.seen.append((tuple(command), variables, folder, user, network))
        self.roots.append(root)
        (upper / "work").mkdir()  # as an overlay leaves one
        on_line(f"doing {command[-1]}")
        match command[-1].split():
            case ["write", path, text]:
                place = upper / (path[1:] if path.startswith("/usr/") and root.system else f"root{path}")
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(text)
            case ["fail"]:
                return 7
        return 0

    @property
    def commands(self) -> list[str]:
        return [command[-1] for command, *_ in self.seen]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def run() -> FakeRun:
    return FakeRun()


@pytest.fixture
def roots(home: Path, run: FakeRun) -> Roots:
    return Roots(home, run=run)


@pytest.fixture
def project(tmp_path: Path) -> Callable[..., Project]:
    """`project({"path": "text"}, artifacts=[...])` makes one."""

    def make(files: dict[str, str], **config: object) -> Project:
        place = tmp_path / "project"
        for name, text in files.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_text(text)
        place.mkdir(exist_ok=True)
        (place / "config.json").write_text(json.dumps({"name": "env", "version": "1.0.0", **config}))
        return load_project(place)

    return make


@pytest.fixture
def built(home: Path, tmp_path: Path, run: FakeRun):
    """`await built("RUN ...", ..., files={})` does a Dockerfile on an empty base, or on `base`."""

    async def do(
        *lines: str, files: Mapping[str, str] | None = None, base: Root | None = None, text: str = ""
    ) -> Root:
        context = tmp_path / "context"
        for name, content in (files or {}).items():
            (context / name).parent.mkdir(parents=True, exist_ok=True)
            (context / name).write_text(content)
        context.mkdir(exist_ok=True)
        empty = store.place(home, "steps") / "empty"
        empty.mkdir(exist_ok=True)

        async def find_base(reference: str) -> State:
            if reference.startswith("none"):
                raise NotFound(f"no image {reference!r}")
            return State(base or Root(reference, (empty,)), f"base {reference}")

        steps = Steps(home, run=run, limits=Limits(), network=True)
        return await build(
            text or "\n".join(("FROM scratch", *lines)), context, name="test", steps=steps, find_base=find_base
        )

    return do


def content(root: Root, top: str = "/") -> dict[str, str | None]:
    """Every path that a root shows, with its text; None for folders."""
    return {
        path: f"<{os.readlink(place)}>" if place.is_symlink() else None if place.is_dir() else place.read_text()
        for path, place in View(root).walk(top)
    }


# The host


def test_the_host_root_shows_usr_and_a_skeleton(home: Path) -> None:
    root = host_root(home)
    (skeleton,) = root.layers
    assert root.system["/usr"] == (Path("/usr"),)
    for name in ("tmp", "var/tmp", "run/shm"):
        assert stat.S_IMODE((skeleton / name).stat().st_mode) == 0o1777
    for name in ("proc", "sys", "dev", "workspace", "environment", "data", "root", "home", "var/log", "usr"):
        assert (skeleton / name).is_dir() and not any((skeleton / name).iterdir())
    assert (skeleton / "etc/passwd").read_text().startswith("root:x:0:0:root:/workspace:/bin/bash\n")
    assert "files dns" in (skeleton / "etc/nsswitch.conf").read_text()
    assert os.readlink(skeleton / "bin") == "usr/bin"


def test_the_host_root_is_made_once(home: Path) -> None:
    first = host_root(home)
    before = first.layers[0].stat().st_ino
    assert host_root(home) == first and first.layers[0].stat().st_ino == before
    assert [path.name for path in (home / "roots").iterdir() if path.is_dir()] == [first.layers[0].name]


@pytest.fixture
def fake_host(tmp_path: Path) -> Path:
    """A host with secrets at every place where the skeleton looks."""
    host = tmp_path / "host"
    for name in (
        "shadow",
        "gshadow",
        "machine-id",
        "profile",
        "gitconfig",
        "pip.conf",
        "ssh/key",
        "ssl/private/key",
    ):
        (host / "etc" / name).parent.mkdir(parents=True, exist_ok=True)
        (host / "etc" / name).write_text("SECRET")
    for name in ("passwd", "group", "hosts", "hostname", "resolv.conf", "ssl/certs/own.pem", "bash.bashrc"):
        (host / "etc" / name).parent.mkdir(parents=True, exist_ok=True)
        (host / "etc" / name).write_text("SECRET")
    for name, mode in (("services", 0o600), ("protocols", 0o666), ("rpc", 0o664), ("magic", 0o640)):
        (host / "etc" / name).write_text("SECRET")
        (host / "etc" / name).chmod(mode)
    (host / "etc/shells").symlink_to("shadow")
    os.mkfifo(host / "etc/inputrc")
    (host / "etc/networks").mkdir()
    (host / "etc/mime.types").write_text("text/plain txt")
    (host / "etc/mime.types").chmod(0o4755)
    (host / "usr/bin").mkdir(parents=True)
    (host / "bin").mkdir()
    (host / "lib").symlink_to("usr/lib")
    return host


def test_no_secret_of_the_host_gets_into_the_skeleton(home: Path, fake_host: Path) -> None:
    (skeleton,) = host_root(home, fake_host).layers
    files = [path for path in skeleton.rglob("*") if path.is_file() and not path.is_symlink()]
    assert files and not [path for path in files if "SECRET" in path.read_text()]
    assert stat.S_IMODE((skeleton / "etc/mime.types").stat().st_mode) == 0o755
    # A link leads to what the root itself has there: nothing.
    assert os.readlink(skeleton / "etc/shells") == "shadow" and not (skeleton / "etc/shadow").exists()
    assert not (skeleton / "etc/inputrc").exists() and not (skeleton / "etc/networks").exists()


def test_folders_that_are_not_in_usr_are_shown_besides(home: Path, fake_host: Path) -> None:
    root = host_root(home, fake_host)
    assert root.system == {"/usr": (fake_host / "usr",), "/bin": (fake_host / "bin",)}
    assert (root.layers[0] / "bin").is_dir() and os.readlink(root.layers[0] / "lib") == "usr/lib"


def test_another_state_of_the_host_is_another_root(home: Path, fake_host: Path) -> None:
    before = host_root(home, fake_host)
    (fake_host / "etc/timezone").write_text("Europe/Berlin")
    assert host_root(home, fake_host).layers != before.layers


def test_only_their_owner_looks_into_the_roots(home: Path) -> None:
    host_root(home)
    assert stat.S_IMODE((home / "roots").stat().st_mode) == 0o700


def test_the_package_database_comes_without_passwords_and_host_accounts(home: Path, fake_host: Path) -> None:
    for name, text in {
        "var/lib/dpkg/status": "Package: x",
        "var/lib/dpkg/info/x.list": "/usr/bin/x",
        "var/lib/dpkg/statoverride": "root ssl-cert 710 /x",
        "etc/apt/sources.list": "deb http://packages.test/debian stable main",
        "etc/apt/sources.list.d/own.list": "deb https://me:SECRET@packages.test/own stable main",
        "etc/apt/auth.conf": "SECRET",
        "etc/apt/apt.conf.d/proxy": "SECRET",
        "usr/share/base-passwd/passwd.master": "root:*:0:0:root:/root:/bin/bash\nman:*:6:12:man:/:/bin/false\n",
    }.items():
        (fake_host / name).parent.mkdir(parents=True, exist_ok=True)
        (fake_host / name).write_text(text)
    layer = packages_layer(home, fake_host)
    assert layer is not None
    files = {str(path.relative_to(layer)): path.read_text() for path in layer.rglob("*") if path.is_file()}
    assert {"var/lib/dpkg/status", "var/lib/dpkg/info/x.list", "etc/apt/sources.list"} <= set(files)
    assert "SECRET" not in "".join(files.values()) and "var/lib/dpkg/statoverride" not in files
    assert files["etc/passwd"].startswith("root:x:0:0:root:/workspace:/bin/bash\nman:x:6")
    assert packages_layer(home, fake_host) == layer
    (fake_host / "var/lib/dpkg/status").unlink()
    assert packages_layer(home, fake_host) is None


# What a root shows


def test_a_view_merges_layers_and_stays_inside(tmp_path: Path) -> None:
    upper, lower, usr = tmp_path / "upper", tmp_path / "lower", tmp_path / "usr"
    for path in (upper / "d", lower / "d", lower / "usr", usr / "bin"):
        path.mkdir(parents=True)
    (lower / "d/a").write_text("lower")
    (upper / "d/a").write_text("upper")
    (lower / "d/b").write_text("b")
    (lower / "bin").symlink_to("usr/bin")
    (usr / "bin/tool").write_text("tool")
    (lower / "out").symlink_to("../../../../../etc/passwd")
    (lower / "loop").symlink_to("loop")
    view = View(Root("x", (upper, lower), {"/usr": (usr,)}))
    assert view.names("/") == ["bin", "d", "loop", "out", "usr"]
    assert view.read("/d/a") == b"upper" and view.read("/d/b") == b"b"
    assert view.resolve("/bin/tool") == "/usr/bin/tool" and view.read("/bin/../bin/tool") == b"tool"
    assert view.read("/out") is None and view.resolve("/out") == "/etc/passwd"
    with pytest.raises(InvalidRequest, match="too many links"):
        view.read("/loop")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes whiteouts by hand")
def test_a_view_knows_what_a_layer_has_removed(tmp_path: Path) -> None:
    upper, lower = tmp_path / "upper", tmp_path / "lower"
    (lower / "d").mkdir(parents=True)
    (lower / "o").mkdir()
    for name in ("a", "d/b", "o/c"):
        (lower / name).write_text("")
    (upper / "o").mkdir(parents=True)
    os.mknod(upper / "a", stat.S_IFCHR, os.makedev(0, 0))
    os.mknod(upper / "d", stat.S_IFCHR, os.makedev(0, 0))
    os.setxattr(upper / "o", "user.overlay.opaque", b"y")
    assert content(Root("x", (upper, lower))) == {"/o": None}


# Dockerfiles


async def test_run_gets_shell_variables_folder_and_user(built, run: FakeRun) -> None:
    await built(
        "ARG V=1", "ENV A=$V", "WORKDIR /app", "WORKDIR sub", "USER app", "RUN one", 'RUN ["two", "three"]'
    )
    command, variables, where, user, network = run.seen[0]
    assert command == ("/bin/sh", "-c", "one") and where == "/app/sub" and user == "app" and network
    assert (variables["A"], variables["V"]) == ("1", "1")
    assert run.seen[1][0] == ("two", "three")


async def test_the_result_has_layers_variables_and_folder(built) -> None:
    root = await built("ENV A=1", "WORKDIR /app", "RUN write /app/x hello", "ARG HIDDEN=1", "RUN write /y 2")
    assert content(root) == {"/app": None, "/app/x": "hello", "/y": "2"}
    assert (root.name, root.variables, root.folder) == ("test", {"A": "1"}, "/app")


async def test_a_step_is_done_once_and_again_when_something_before_it_changed(built, run: FakeRun) -> None:
    lines = ("RUN write /a 1", "COPY f /f", "RUN write /b 2")
    first = await built(*lines, files={"f": "1"})
    assert await built(*lines) == first and run.commands == ["write /a 1", "write /b 2"]
    await built(*lines, files={"f": "2"})
    assert run.commands == ["write /a 1", "write /b 2", "write /b 2"]
    await built("ENV X=1", *lines)
    assert run.commands[3:] == ["write /a 1", "write /b 2"]


async def test_a_step_that_fails_names_its_line_and_leaves_nothing(built, home: Path, run: FakeRun) -> None:
    with pytest.raises(
        StartFailed, match="Dockerfile line 3: RUN ended with status 7; its last lines:\ndoing fail"
    ):
        await built("RUN write /a 1", "RUN fail")
    places = [path.name for path in (home / "roots/steps").iterdir() if path.is_dir() and path.name != "empty"]
    assert len([name for name in places if not name.startswith(".")]) == 1
    assert not [name for name in places if name.startswith((".new", ".old"))]


async def test_an_overlays_own_folders_are_not_kept(built, home: Path) -> None:
    root = await built("RUN write /a 1")
    assert os.listdir(root.layers[0].parent) == ["root"]


async def test_copy_follows_dockers_rules_about_targets(built) -> None:
    files = {"a": "a", "b": "b", "d/x": "x", "d/sub/y": "y"}
    root = await built(
        *("COPY a /file", "COPY a /folder/", "COPY a b /both/", "COPY d /d", "COPY d/ /e/", "WORKDIR /w"),
        *("COPY a .", 'COPY ["b", "./with space/"]', "COPY ? /glob/", "COPY d/s* /dirglob/", "COPY ../../b /up"),
        files=files,
    )
    found = {path: text for path, text in content(root).items() if text is not None}
    assert found == {
        "/file": "a",
        "/folder/a": "a",
        "/both/a": "a",
        "/both/b": "b",
        "/d/x": "x",
        "/d/sub/y": "y",
        "/e/x": "x",
        "/e/sub/y": "y",
        "/w/a": "a",
        "/w/with space/b": "b",
        "/glob/a": "a",
        "/glob/b": "b",
        # A folder that a pattern finds brings what is in it, and not itself.
        "/glob/x": "x",
        "/glob/sub/y": "y",
        "/dirglob/y": "y",
        "/up": "b",
    }


async def test_copy_of_everything_leaves_out_what_dockerignore_says(built) -> None:
    files = {
        "a": "",
        "secret/key": "",
        "deep/secret/key": "",
        "logs/x.log": "",
        "logs/keep.log": "",
        "n/x.pyc": "",
    }
    ignore = "# a comment\n/secret\nlogs/*\n!logs/keep.log\n**/*.pyc\n"
    root = await built("COPY . /app", files={**files, ".dockerignore": ignore})
    found = [path for path, text in content(root, "/app").items() if text is not None]
    assert found == ["/app/.dockerignore", "/app/a", "/app/logs/keep.log", "/app/deep/secret/key"]


async def test_copied_files_have_roots_owner_and_the_asked_mode(built) -> None:
    passwd = "root:x:0:0::/:/bin/sh\napp:x:33:44::/:/bin/sh\n"
    root = await built(
        *("COPY passwd /etc/passwd", "COPY a /a", "COPY --chown=app --chmod=640 a /b/c", "COPY --chown=5:6 a /d"),
        files={"passwd": passwd, "a": ""},
    )
    view = View(root)

    def facts(path: str) -> tuple[int, int, int]:
        status = view.find(path).lstat()
        return status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)

    mode = facts("/a")[2]
    own = (os.getuid(), os.getgid())
    expected = [(0, 0, mode), (33, 44, 0o640), (33, 44, 0o755), (5, 6, mode)]
    if os.geteuid() != 0:
        expected = [(*own, facts[2]) for facts in expected]
    assert [facts(path) for path in ("/a", "/b/c", "/b", "/d")] == expected


async def test_copying_into_a_folder_does_not_change_the_folder(built, tmp_path: Path) -> None:
    base = tmp_path / "base"
    (base / "tmp").mkdir(parents=True)
    (base / "tmp").chmod(0o1777)
    (base / "tool.tar").write_bytes(b"")
    (tmp_path / "context").mkdir()
    (tmp_path / "context/x.tar").write_bytes(layer(file("in", "side")))
    for lines in (("COPY a /tmp/a",), ("ADD x.tar /tmp",)):
        root = await built(*lines, files={"a": ""}, base=Root("base", (base,)))
        assert stat.S_IMODE((root.layers[0] / "tmp").stat().st_mode) == 0o1777


async def test_copy_goes_through_links_of_the_base_and_never_out_of_it(built, tmp_path: Path) -> None:
    outside, base = tmp_path / "outside", tmp_path / "base"
    outside.mkdir()
    (base / "usr/bin").mkdir(parents=True)
    (base / "bin").symlink_to("usr/bin")
    (base / "evil").symlink_to(outside)
    root = await built("COPY a /bin/", "COPY a /evil/", files={"a": "1"}, base=Root("base", (base,)))
    assert not any(outside.iterdir())
    assert content(root)["/usr/bin/a"] == "1" and content(root)[f"{outside}/a"] == "1"


async def test_links_in_what_is_copied_cannot_be_written_through(built, tmp_path: Path) -> None:
    outside, context = tmp_path / "outside", tmp_path / "context"
    outside.mkdir()
    (context / "one").mkdir(parents=True)
    (context / "two/x").mkdir(parents=True)
    (context / "one/x").symlink_to(outside)
    (context / "two/x/file").write_text("evil")
    (context / "key").symlink_to("/etc/shadow")
    await built("COPY one two /d/")
    assert not any(outside.iterdir())
    with pytest.raises(InvalidRequest, match="COPY finds no 'key'"):
        await built("COPY key /key")


async def test_add_unpacks_archives_of_the_project(built, tmp_path: Path) -> None:
    (tmp_path / "context").mkdir()
    archive = layer(folder("d"), file("d/x", "1"), file("../../up", "2"), link("l", "d"))
    (tmp_path / "context/x.tar").write_bytes(archive)
    root = await built("ADD x.tar /opt/here", "ADD a /a", "COPY x.tar /x.tar", files={"a": "plain"})
    found = content(root, "/opt")
    assert {"/opt/here/d/x": "1", "/opt/here/l": "<d>"}.items() <= found.items()
    assert (View(root).read("/x.tar") or b"") == archive and View(root).read("/a") == b"plain"


@pytest.mark.parametrize(
    "entries",
    [
        (link("../root", "{outside}"), file("../root/x")),
        (link("../../root", "{outside}"),),
        (link("up", "/"), link("up/root", "{outside}"), file("up/root/x")),
        (link("up", "../.."), link("up/usr", "{outside}")),
        (link(".", "{outside}"), file("x")),
    ],
)
@pytest.mark.parametrize("target", ["/", "/usr", "/deep/er"])
async def test_no_archive_can_pass_off_a_folder_of_the_host_as_a_layer(
    built, tmp_path: Path, entries, target
) -> None:
    outside, usr = tmp_path / "outside", tmp_path / "usr"
    for path in (outside, usr, tmp_path / "context", tmp_path / "skeleton/usr"):
        path.mkdir(parents=True)
    (outside / "secret").write_text("kept")
    entries = [(copy.copy(entry), text) for entry, text in entries]  # other tests have the same
    for entry, _ in entries:
        entry.linkname = entry.linkname.format(outside=outside)
    (tmp_path / "context/x.tar").write_bytes(layer(*entries))
    base = Root("host", (tmp_path / "skeleton",), {"/usr": (usr,)})
    with contextlib.suppress(InvalidRequest, StartFailed):
        root = await built(f"ADD x.tar {target}", base=base)
        assert all(path.is_dir() and not path.is_symlink() for path in (*root.layers, *root.system["/usr"]))
        assert "kept" not in content(root).values()
    assert os.listdir(outside) == ["secret"] and not os.listdir(usr)


async def test_an_archive_that_replaces_usr_by_a_link_is_refused(built, tmp_path: Path) -> None:
    usr, skeleton = tmp_path / "usr", tmp_path / "skeleton"
    usr.mkdir()
    (skeleton / "usr").mkdir(parents=True)
    (tmp_path / "context").mkdir()
    (tmp_path / "context/x.tar").write_bytes(layer(link("usr", "/")))
    with pytest.raises(InvalidRequest, match="would replace /usr"):
        await built("ADD x.tar /", base=Root("host", (skeleton,), {"/usr": (usr,)}))


async def test_links_among_several_sources_cannot_reach_another_layer(built, home: Path, tmp_path: Path) -> None:
    context, outside = tmp_path / "context", tmp_path / "outside"
    for path in (outside, context / "one/x", context / "three/x"):
        path.mkdir(parents=True)
    (context / "two").mkdir()
    (outside / "secret").write_text("kept")
    (context / "two/x").symlink_to("/")
    for name in ("root", "stray"):
        (context / "three/x" / name).symlink_to(outside)
    root = await built("COPY one two three /d/")
    assert not root.layers[0].is_symlink() and os.listdir(outside) == ["secret"]
    assert os.listdir(root.layers[0].parent) == ["root"] and "kept" not in content(root).values()


def test_removing_a_link_leaves_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/file").write_text("")
    (tmp_path / "link").symlink_to("kept")
    store.remove(tmp_path / "link")
    assert os.listdir(tmp_path) == ["kept"] and os.listdir(tmp_path / "kept") == ["file"]


async def test_on_the_host_root_usr_has_layers_of_its_own(built, tmp_path: Path) -> None:
    skeleton, usr = tmp_path / "skeleton", tmp_path / "usr"
    (skeleton / "usr").mkdir(parents=True)
    (usr / "bin").mkdir(parents=True)
    (skeleton / "bin").symlink_to("usr/bin")
    context = tmp_path / "context"
    context.mkdir()
    (context / "x.tar").write_bytes(layer(file("usr/share/s", "s"), file("etc/e", "e")))
    (context / "bad.tar").write_bytes(layer(file("bin/s", "s")))
    base = Root("host", (skeleton,), {"/usr": (usr,)})
    lines = ("COPY a /bin/tool", "COPY a /etc/a", "RUN write /usr/lib/z z", "ADD x.tar /", "ADD x.tar /usr/local")
    root = await built(*lines, files={"a": "a"}, base=base)
    assert len(root.layers) == 6 and len(root.system["/usr"]) == 5  # one of the five wrote nothing there
    found = {path: text for path, text in content(root).items() if text is not None}
    assert found == {
        "/bin": "<usr/bin>",
        "/usr/bin/tool": "a",
        "/etc/a": "a",
        "/usr/lib/z": "z",
        "/usr/share/s": "s",
        "/etc/e": "e",
        "/usr/local/usr/share/s": "s",
        "/usr/local/etc/e": "e",
    }
    with pytest.raises(InvalidRequest, match="would replace /bin; unpack it with RUN tar -x"):
        await built("ADD bad.tar /", base=base)


async def test_stages_give_files_to_later_ones_and_unneeded_ones_are_never_begun(built, run: FakeRun) -> None:
    text = """
    ARG BASE=first
    FROM ${BASE} AS build
    ARG BASE
    RUN write /out/a $BASE
    FROM none:1 AS unused
    RUN never
    FROM second
    COPY --from=build /out/ /in/
    COPY --from=0 /out/a /b
    FROM build AS last
    COPY --from=2 /in /in
    """
    root = await built(text=text)
    assert run.commands == ["write /out/a $BASE"] and run.seen[0][1]["BASE"] == "first"
    assert content(root) == {"/in": None, "/out": None, "/in/a": "$BASE", "/out/a": "$BASE"}


def test_of_the_hosts_files_only_those_are_copied_that_everybody_may_read(tmp_path: Path) -> None:
    system = tmp_path / "usr"
    for name, mode in (("open", 0o755), ("closed", 0o700)):
        (system / name).mkdir(parents=True)
        (system / name / "file").write_text(name)
        (system / name).chmod(mode)
    (system / "secret").write_text("secret")
    (system / "secret").chmod(0o600)
    (tmp_path / "skeleton").mkdir()
    view = View(Root("host", (tmp_path / "skeleton",), {str(system): (system,)}))
    found = items(view, chosen(view, str(system), view.is_closed), "/out", view.is_closed)
    assert [item.target for item in found] == ["/out", "/out/open", "/out/open/file"]
    assert chosen(view, f"{system}/closed/file", view.is_closed) == []
    assert chosen(view, f"{system}/sec*", view.is_closed) == []


async def test_heredocs_are_scripts_input_and_files(built, run: FakeRun) -> None:
    root = await built(
        *("ENV X=1", "RUN <<EOF", "one", "two", "EOF", "RUN python3 <<'PY' && three", "print()", "PY"),
        *("COPY <<one <<'two' /d/", "$X", "one", "$X", "two", "COPY <<EOF /single", "s", "EOF"),
    )
    assert run.commands == ["one\ntwo\n", "python3 <<'PY' && three\nprint()\nPY\n"]
    assert content(root) == {"/d": None, "/single": "s\n", "/d/one": "1\n", "/d/two": "$X\n"}


async def test_quotes_in_a_file_of_a_heredoc_stay(built) -> None:
    root = await built("ENV X=1", "COPY <<EOF /f", r"""{"a": "$X ${Y:-2}", 'b': "it's \$5"}""", "EOF")
    assert content(root) == {"/f": """{"a": "1 2", 'b': "it's $5"}\n"""}


async def test_commands_of_a_user_have_that_users_home(built, run: FakeRun) -> None:
    files = {"passwd": "root:x:0:0::/workspace:/bin/sh\napp:x:33:44::/home/app:/bin/sh\n"}
    users = ("USER app", "RUN b", "USER 33:44", "RUN c", "USER who", "RUN d")
    await built("COPY passwd /etc/", "RUN a", *users, files=files)
    assert [variables["HOME"] for _, variables, *_ in run.seen] == ["/root", "/home/app", "/home/app", "/"]


async def test_what_has_no_effect_is_noted(built) -> None:
    root = await built(
        *(
            "RUN --mount=type=cache,target=/c x",
            "EXPOSE 80",
            "VOLUME /v",
            "LABEL a=b",
            "USER app",
            'CMD ["serve"]',
        ),
    )
    said = "\n".join(root.notes)
    for words in (
        "--mount=type=cache is ignored",
        "EXPOSE has",
        "VOLUME has",
        "USER app is not kept",
        "'serve' is not",
    ):
        assert words in said
    assert "LABEL" not in said


async def test_the_published_template_is_done_without_a_complaint(built) -> None:
    root = await built(
        *("WORKDIR /app", "ENV PYTHONPATH=/app/src", "COPY . .", "RUN pip install -r requirements.txt"),
        *('ENTRYPOINT ["/bin/bash","-c"]', 'CMD ["python3 -m aenv.main /app/src"]'),
        files={"requirements.txt": "aenvironment", "src/custom_env.py": ""},
    )
    assert root.notes == () and root.variables == {"PYTHONPATH": "/app/src"} and root.folder == "/app"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("RUN --mount=type=secret,id=x y", "line 2: RUN --mount=type=secret,id=x is not supported; COPY what"),
        ("RUN --security=insecure y", "line 2: RUN --security=insecure is not supported"),
        ("RUN <<EOF\n#!/usr/bin/env python3\nEOF", "write RUN /usr/bin/env python3 <<EOF"),
        (
            "ADD https://x.test/y /z",
            "line 2: cannot ADD from the network; write RUN curl -fsSL -o /z https://x.test/y",
        ),
        ("COPY missing /x", "line 2: COPY finds no 'missing'; paths are those of the project's folder"),
        ("COPY one", "line 2: COPY needs a source and a target"),
        ("COPY --parents a /x", "line 2: COPY --parents is not supported; leave it out"),
        ("COPY --chown=nobody config.json /x", "there is no 'nobody' in /etc/passwd; make it with RUN useradd"),
        ("COPY --chmod=u+x config.json /x", "write it like --chmod=755"),
        ("ADD --chown=1 x.tar /", "ADD unpacks archives as they are; write RUN chown"),
        ("SHELL /bin/bash", 'write SHELL ["/bin/bash", "-c"]'),
    ],
)
async def test_what_cannot_be_done_is_refused_with_line_and_fix(built, line: str, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        await built(line, files={"config.json": "{}", "x.tar": ""})
    assert message in caught.value.message


async def test_a_run_without_network_gets_none(built, run: FakeRun) -> None:
    await built("RUN --network=none x", "RUN x")
    assert [network for *_, network in run.seen] == [False, True]


# Which root


async def test_an_image_that_is_loaded_comes_first(roots: Roots, project, tmp_path: Path) -> None:
    await roots.load(docker_archive(tmp_path / "x.tar", layer(file("a"))), "registry.test/env:1")
    found = project(
        {"Dockerfile": "FROM scratch"}, artifacts=[{"type": "image", "content": "registry.test/env:1"}]
    )
    root = await roots.root_for(found)
    assert root.name == "registry.test/env:1" and content(root) == {"/a": ""} and root.notes == ()
    assert roots.describe(found) == "its image 'registry.test/env:1'"


async def test_an_image_may_lie_in_the_project_but_not_outside(roots: Roots, project, tmp_path: Path) -> None:
    found = project({"x": ""}, artifacts=[{"type": "image", "content": "./image.tar"}])
    docker_archive(found.path / "image.tar", layer(file("a")))
    first = await roots.root_for(found)
    assert content(first) == {"/a": ""} and await roots.root_for(found) == first
    assert roots.list() == {}  # or a stranger's image could pass for a base of others
    (found.path / "image.tar").unlink()
    docker_archive(tmp_path / "out.tar", layer(file("b")), names=["out:1"])
    (found.path / "image.tar").symlink_to(tmp_path / "out.tar")
    assert (await roots.root_for(found)).name == "host"


async def test_without_the_image_the_dockerfile_is_done_and_the_notes_say_so(
    roots: Roots, project, run: FakeRun
) -> None:
    found = project(
        {"docker/Dockerfile": "FROM python:3.12-slim\nCOPY config.json /app/\nRUN write /usr/local/x y"},
        artifacts=[{"type": "image", "content": "registry.test/env:1"}],
        buildConfig={"dockerfile": "docker/Dockerfile"},
    )
    root = await roots.root_for(found)
    assert root.name == "Dockerfile of env@1.0.0" and View(root).read("/usr/local/x") == b"y"
    assert "bring it with: aenv image load FILE --name registry.test/env:1" in root.notes[0]
    assert root.notes[1].startswith("python:3.12-slim stands for the host's own system (")
    assert roots.describe(found).startswith(
        "what its docker/Dockerfile says; its image 'registry.test/env:1' is not here"
    )


async def test_with_neither_the_host_is_used(roots: Roots, project) -> None:
    found = project({"x": ""})
    root = await roots.root_for(found)
    assert root.name == "host" and root.system["/usr"] == (Path("/usr"),)
    assert roots.describe(found).startswith("the host's own system, ") and "no Dockerfile" in roots.describe(found)


async def test_a_dockerfile_can_begin_with_a_loaded_image_or_nothing(
    roots: Roots, project, tmp_path: Path
) -> None:
    image = docker_archive(
        tmp_path / "x.tar", layer(file("a", "1")), names=["debian:12"], Env=["E=1"], WorkingDir="/w"
    )
    await roots.load(image)
    root = await roots.root_for(project({"Dockerfile": "FROM docker.io/library/debian:12\nCOPY config.json here"}))
    assert View(root).read("/a") == b"1" and View(root).read("/w/here") and root.variables == {"E": "1"}
    assert root.notes == () and root.system == {}
    assert content(await roots.root_for(project({"Dockerfile": "FROM scratch\nWORKDIR /x"}))) == {"/x": None}


async def test_an_unknown_base_is_refused_with_the_fix(roots: Roots, project) -> None:
    with pytest.raises(NotFound, match="then: aenv image load FILE --name node:20"):
        await roots.root_for(project({"Dockerfile": "FROM node:20"}))
    with pytest.raises(NotFound, match="aenv image load FILE --name other:1"):
        await roots.image("other:1")


async def test_a_dockerfile_outside_the_project_is_not_read(roots: Roots, project, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM scratch\nCOPY . /stolen")
    found = project({"x": ""}, buildConfig={"dockerfile": "../Dockerfile", "context": "../.."})
    assert (await roots.root_for(found)).name == "host"


async def test_collect_removes_what_nobody_used_and_keeps_what_is_in_use(
    roots: Roots, project, home: Path
) -> None:
    kept = await roots.root_for(project({"Dockerfile": "FROM python:3\nRUN write /a 1\nRUN write /usr/b 2"}))
    old = await roots.root_for(project({"Dockerfile": "FROM python:3\nRUN write /a 1\nRUN write /c 3"}))
    for path in home.rglob("*.used"):
        os.utime(path, (1, 1))
    removed = await roots.collect([kept], 60)
    assert removed == (old.layers[0].parent.name,)
    assert all(folder.is_dir() for folder in kept.layers + kept.system["/usr"])
    assert not old.layers[0].exists()
    assert await roots.collect([], 1e12) == ()


# With a real sandbox


@pytest.fixture
def real() -> RunCommand:
    """What really runs commands."""
    if importlib.util.find_spec("aenv.sandbox.run") is None:
        pytest.skip("there is no sandbox to run commands in")
    from aenv.sandbox.run import run

    return run


async def test_commands_really_run_in_the_image(real, home: Path, project, tmp_path: Path) -> None:
    roots = Roots(home, run=real)
    await roots.load(
        docker_archive(tmp_path / "x.tar", layer(*busybox(), folder("tmp", mode=0o1777)), names=["box:1"])
    )
    dockerfile = (
        "FROM box:1\nENV A=1\nRUN echo $A > /a && rm -r /tmp && id -u > /id\nRUN cat /a /a > /b; echo said"
    )
    lines: list[str] = []
    root = await roots.root_for(project({"Dockerfile": dockerfile}), on_line=lines.append)
    view = View(root)
    assert (view.read("/b"), view.read("/id")) == (b"1\n1\n", b"0\n")
    assert view.find("/tmp") is None and "said" in lines


async def test_commands_really_run_on_the_host_root(real, home: Path, project) -> None:
    roots = Roots(home, run=real)
    dockerfile = (
        "FROM python:3.11\nRUN echo 1 > /usr/local/made-by-test && ls / > /seen\nRUN rm /usr/local/made-by-test"
    )
    root = await roots.root_for(project({"Dockerfile": dockerfile}))
    seen = (View(root).read("/seen") or b"").decode().split()
    assert "usr" in seen and "etc" in seen
    assert View(root).find("/usr/local/made-by-test") is None and not Path("/usr/local/made-by-test").exists()
