"""Dockerfiles: done step by step, on an empty base or on the host's own system."""

from __future__ import annotations

import contextlib
import copy
import os
import stat
from pathlib import Path

import pytest

from aenv.base.errors import InvalidRequest, StartFailed
from aenv.isolation.rootfs import folder_cache
from aenv.isolation.rootfs.copying import chosen, items
from aenv.isolation.rootfs.merged_view import MergedView
from aenv.isolation.sandbox.rootfs import Rootfs
from tests.rootfs.doing import FakeRun, content
from tests.saved_images import file, folder, layer, link

pytestmark = pytest.mark.slow


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
    view = MergedView(root)

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
        root = await built(*lines, files={"a": ""}, base=Rootfs("base", (base,)))
        assert stat.S_IMODE((root.layers[0] / "tmp").stat().st_mode) == 0o1777


async def test_copy_goes_through_links_of_the_base_and_never_out_of_it(built, tmp_path: Path) -> None:
    outside, base = tmp_path / "outside", tmp_path / "base"
    outside.mkdir()
    (base / "usr/bin").mkdir(parents=True)
    (base / "bin").symlink_to("usr/bin")
    (base / "evil").symlink_to(outside)
    root = await built("COPY a /bin/", "COPY a /evil/", files={"a": "1"}, base=Rootfs("base", (base,)))
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
    assert (MergedView(root).read("/x.tar") or b"") == archive and MergedView(root).read("/a") == b"plain"


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
    base = Rootfs("host", (tmp_path / "skeleton",), {"/usr": (usr,)})
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
        await built("ADD x.tar /", base=Rootfs("host", (skeleton,), {"/usr": (usr,)}))


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
    folder_cache.remove(tmp_path / "link")
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
    base = Rootfs("host", (skeleton,), {"/usr": (usr,)})
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
    view = MergedView(Rootfs("host", (tmp_path / "skeleton",), {str(system): (system,)}))
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


async def test_a_pattern_that_finds_nothing_is_left_out_beside_other_sources(built) -> None:
    root = await built("COPY config.json .aenv/*.whl /app/", files={"config.json": "{}"})
    assert MergedView(root).names("/app") == ["config.json"]
    with pytest.raises(InvalidRequest, match=r"COPY finds no '\*\.whl'"):
        await built("COPY *.whl /app/", files={"config.json": "{}"})


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
