"""Roots: what an instance sees as `/`, from the host, an image or a Dockerfile."""

from __future__ import annotations

import importlib.util
import os
import stat
from importlib.metadata import version
from pathlib import Path

import pytest

from aenv.base.errors import InvalidRequest, NotFound
from aenv.cli import scaffold
from aenv.isolation.rootfs.build_steps import CommandRunner
from aenv.isolation.rootfs.host_layers import INSTALL, packages_layer
from aenv.isolation.rootfs.host_rootfs import host_root
from aenv.isolation.rootfs.merged_view import MergedView
from aenv.isolation.rootfs.resolver import RootfsResolver
from aenv.isolation.sandbox.rootfs import Rootfs
from tests.rootfs.doing import FakeRun, content
from tests.saved_images import busybox, docker_archive, file, folder, layer

pytestmark = pytest.mark.slow

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
    view = MergedView(Rootfs("x", (upper, lower), {"/usr": (usr,)}))
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
    assert content(Rootfs("x", (upper, lower))) == {"/o": None}


# Which root


async def test_an_image_that_is_loaded_comes_first(roots: RootfsResolver, project, tmp_path: Path) -> None:
    await roots.images.load(docker_archive(tmp_path / "x.tar", layer(file("a"))), "registry.test/env:1")
    found = project(
        {"Dockerfile": "FROM scratch"}, artifacts=[{"type": "image", "content": "registry.test/env:1"}]
    )
    root = await roots.root_for(found)
    assert root.name == "registry.test/env:1" and content(root) == {"/a": ""} and root.notes == ()
    assert roots.describe(found) == "its image 'registry.test/env:1'"


async def test_an_image_may_lie_in_the_project_but_not_outside(
    roots: RootfsResolver, project, tmp_path: Path
) -> None:
    found = project({"x": ""}, artifacts=[{"type": "image", "content": "./image.tar"}])
    docker_archive(found.path / "image.tar", layer(file("a")))
    first = await roots.root_for(found)
    assert content(first) == {"/a": ""} and await roots.root_for(found) == first
    assert roots.images.names() == {}  # or a stranger's image could pass for a base of others
    (found.path / "image.tar").unlink()
    docker_archive(tmp_path / "out.tar", layer(file("b")), names=["out:1"])
    (found.path / "image.tar").symlink_to(tmp_path / "out.tar")
    assert (await roots.root_for(found)).name == "host"


async def test_without_the_image_the_dockerfile_is_done_and_the_notes_say_so(
    roots: RootfsResolver, project, run: FakeRun
) -> None:
    found = project(
        {"docker/Dockerfile": "FROM python:3.12-slim\nCOPY config.json /app/\nRUN write /usr/local/x y"},
        artifacts=[{"type": "image", "content": "registry.test/env:1"}],
        buildConfig={"dockerfile": "docker/Dockerfile"},
    )
    root = await roots.root_for(found)
    assert root.name == "Dockerfile of env@1.0.0" and MergedView(root).read("/usr/local/x") == b"y"
    assert "bring it with: aenv image load FILE --name registry.test/env:1" in root.notes[0]
    assert root.notes[1].startswith("python:3.12-slim stands for the host's own system (")
    assert roots.describe(found).startswith(
        "what its docker/Dockerfile says; its image 'registry.test/env:1' is not here"
    )


async def test_with_neither_the_host_is_used(roots: RootfsResolver, project) -> None:
    found = project({"x": ""})
    root = await roots.root_for(found)
    assert root.name == "host" and root.system["/usr"] == (Path("/usr"),)
    assert roots.describe(found).startswith("the host's own system, ") and "no Dockerfile" in roots.describe(found)


async def test_a_dockerfile_can_begin_with_a_loaded_image_or_nothing(
    roots: RootfsResolver, project, tmp_path: Path
) -> None:
    image = docker_archive(
        tmp_path / "x.tar", layer(file("a", "1")), names=["debian:12"], Env=["E=1"], WorkingDir="/w"
    )
    await roots.images.load(image)
    root = await roots.root_for(project({"Dockerfile": "FROM docker.io/library/debian:12\nCOPY config.json here"}))
    assert (
        MergedView(root).read("/a") == b"1" and MergedView(root).read("/w/here") and root.variables == {"E": "1"}
    )
    assert root.notes == () and root.system == {}
    assert content(await roots.root_for(project({"Dockerfile": "FROM scratch\nWORKDIR /x"}))) == {"/x": None}


async def test_an_unknown_base_is_refused_with_the_fix(roots: RootfsResolver, project) -> None:
    with pytest.raises(NotFound, match="then: aenv image load FILE --name node:20"):
        await roots.root_for(project({"Dockerfile": "FROM node:20"}))
    with pytest.raises(NotFound, match=r"no image 'registry\.test/team/python-tools:1'"):
        await roots.root_for(project({"Dockerfile": "FROM registry.test/team/python-tools:1"}))
    with pytest.raises(NotFound, match="aenv image load FILE --name other:1"):
        await roots.image("other:1")


@pytest.mark.parametrize("base", ["registry.test/bench/t/ubuntu-24-04:20250624", "team/python-3-13:1"])
async def test_a_base_that_others_keep_under_its_name_and_version_stands_for_the_host(
    roots: RootfsResolver, project, base: str
) -> None:
    root = await roots.root_for(project({"Dockerfile": f"FROM {base}\nCOPY config.json /app/"}))
    assert MergedView(root).read("/app/config.json") and f"{base} stands for the host's own system" in " ".join(
        root.notes
    )


async def test_a_dockerfile_outside_the_project_is_not_read(
    roots: RootfsResolver, project, tmp_path: Path
) -> None:
    (tmp_path / "Dockerfile").write_text("FROM scratch\nCOPY . /stolen")
    found = project({"x": ""}, buildConfig={"dockerfile": "../Dockerfile", "context": "../.."})
    assert (await roots.root_for(found)).name == "host"


async def test_collect_removes_what_nobody_used_and_keeps_what_is_in_use(
    roots: RootfsResolver, project, home: Path
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


async def test_the_line_of_our_template_that_installs_requirements_is_left_out_where_a_layer_has_them(
    roots: RootfsResolver, project, run: FakeRun
) -> None:
    files = {name.as_posix(): text for name, text in scaffold.render("fastmcp", "x", "1.0.0").items()}
    assert f"RUN {INSTALL}\n" in files["Dockerfile"]
    root = await roots.root_for(project({name: files[name] for name in ("Dockerfile", "requirements.txt")}))
    assert run.commands == []
    assert any("is left out: instances get these packages as requirements" in note for note in root.notes)
    other = "FROM python:3\nCOPY more.txt /requirements.txt\nRUN " + INSTALL
    await roots.root_for(project({"Dockerfile": other, "more.txt": "x", "requirements.txt": "y"}))
    assert run.commands == [INSTALL]  # these are not the project's


# With a real sandbox


@pytest.fixture
def real() -> CommandRunner:
    """What really runs commands."""
    if importlib.util.find_spec("aenv.isolation.sandbox.build_run") is None:
        pytest.skip("there is no sandbox to run commands in")
    from aenv.isolation.sandbox.build_run import run

    return run


async def test_commands_really_run_in_the_image(real, home: Path, project, tmp_path: Path) -> None:
    roots = RootfsResolver(home, run=real)
    await roots.images.load(
        docker_archive(tmp_path / "x.tar", layer(*busybox(), folder("tmp", mode=0o1777)), names=["box:1"])
    )
    dockerfile = (
        "FROM box:1\nENV A=1\nRUN echo $A > /a && rm -r /tmp && id -u > /id\nRUN cat /a /a > /b; echo said"
    )
    lines: list[str] = []
    root = await roots.root_for(project({"Dockerfile": dockerfile}), on_line=lines.append)
    view = MergedView(root)
    assert (view.read("/b"), view.read("/id")) == (b"1\n1\n", b"0\n")
    assert view.find("/tmp") is None and "said" in lines
    assert lines[0] == "FROM box:1"  # told before its base is laid out, which takes longest


async def test_aenv_is_installed_where_a_dockerfile_stands_on_the_host(real, home: Path, project) -> None:
    asked = "from importlib.metadata import version; print(version('aenvironment'))"
    dockerfile = (
        f'FROM python:3.11\nENV PYTHONPATH=/x\nRUN python3 -c "{asked}" > /version && echo $PYTHONPATH > /path'
    )
    root = await RootfsResolver(home, run=real).root_for(project({"Dockerfile": dockerfile}))
    assert (MergedView(root).read("/version") or b"").decode().strip() == version("aenvironment")
    assert (MergedView(root).read("/path") or b"").startswith(b"/x:") and root.variables["PYTHONPATH"] == "/x"


async def test_commands_really_run_on_the_host_root(real, home: Path, project) -> None:
    roots = RootfsResolver(home, run=real)
    dockerfile = (
        "FROM python:3.11\nRUN echo 1 > /usr/local/made-by-test && ls / > /seen\nRUN rm /usr/local/made-by-test"
    )
    root = await roots.root_for(project({"Dockerfile": dockerfile}))
    seen = (MergedView(root).read("/seen") or b"").decode().split()
    assert "usr" in seen and "etc" in seen
    assert (
        MergedView(root).find("/usr/local/made-by-test") is None and not Path("/usr/local/made-by-test").exists()
    )
