"""SWE-bench records in every form, the patches in them, and the trees and packages that they need."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.envs.hostile_yaml import HOSTILE
from tests.envs.swebench_data import GOLD, ID, PROJECT, RECORD, SDIST, TEST_PATCH

# isort: split
import swebench_bases as bases
import swebench_patches as patches
import swebench_sealing as sealing
import swebench_sites as sites
import swebench_sources as sources
import swebench_yaml
from swebench_records import BadRecord, Record, public_image, record_of

DIFF = "--- a/x.py\n+++ b/x.py\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n"


def read(folder: Path, id: str = "") -> list[Record]:
    return [*sources.records(folder, id)]


def task_folder(folder: Path, **changes: Any) -> Path:
    """An instance as the public task repository keeps it."""
    raw = {**RECORD, **changes}
    files = {"problem_statement": "problem_statement.md", "hints_text": "hints.md"}
    files |= {"patch": "gold.patch", "test_patch": "test.patch"}
    place = folder / raw["instance_id"]
    place.mkdir(parents=True)
    for field, name in files.items():
        (place / name).write_text(raw.pop(field))
    tests = {name: raw.pop(name) for name in ("FAIL_TO_PASS", "PASS_TO_PASS")}
    (place / "tests.json").write_text(json.dumps(tests))
    (place / "task.yaml").write_text(yaml.safe_dump(raw))
    (place / "environment.yml").write_text(
        "name: testbed\ndependencies:\n  - python=3.9\n  - pip:\n    - pytest==8.4.2\n"
    )
    return place


def test_a_record_is_the_same_in_each_form(tmp_path: Path) -> None:
    as_text = {**RECORD, **{name: json.dumps(RECORD[name]) for name in ("FAIL_TO_PASS", "PASS_TO_PASS")}}
    forms = {
        "lines/any.jsonl": json.dumps(RECORD) + "\n\n",
        "hub/data/test-00000-of-00001.jsonl": json.dumps(as_text),
        "list/any.json": json.dumps([as_text]),
        "one/any.json": json.dumps(RECORD),
        "by-id/any.json": json.dumps({ID: RECORD}),
    }
    for name, content in forms.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(content)
    (tmp_path / "hub" / "dataset_info.json").write_text("{}")
    found = [read(tmp_path / name.split("/")[0]) for name in forms]
    assert found == [[record_of(RECORD)]] * len(forms)


def test_a_folder_of_the_task_repository_is_a_record_with_its_pins(tmp_path: Path) -> None:
    task_folder(tmp_path / "tasks", split="dev", version=1.10)
    [record] = read(tmp_path)
    assert (record.gold, record.test_patch, record.split, record.version) == (GOLD, TEST_PATCH, "dev", "1.1")
    assert record.fail_to_pass == tuple(RECORD["FAIL_TO_PASS"])
    assert sites.pins(record.environment) == {"pytest": "8.4.2"}
    assert read(tmp_path, ID) == [record]


def test_only_the_record_that_is_asked_for_is_read(tmp_path: Path) -> None:
    others = [json.dumps({**RECORD, "instance_id": f"other-{n}"}) for n in range(3)]
    (tmp_path / "all.jsonl").write_text("\n".join([*others, json.dumps(RECORD), "no JSON, and not looked at"]))
    assert [record.id for record in read(tmp_path, ID)] == [ID]
    with pytest.raises(BadRecord, match="line 5 is not JSON"):
        read(tmp_path)


def test_the_split_is_the_records_own_or_that_of_its_file(tmp_path: Path) -> None:
    for split in ("dev", "test"):
        (tmp_path / f"{split}-00000-of-00001.jsonl").write_text(json.dumps({**RECORD, "instance_id": split}))
    assert {record.id: record.split for record in read(tmp_path)} == {"dev": "dev", "test": "test"}


def test_a_table_without_pyarrow_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "test-00000-of-00001.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)  # whether or not it is installed
    with pytest.raises(BadRecord, match=r"needs pyarrow.*to_json"):
        read(tmp_path)


TABLES = """
import datetime, json, sys
from pathlib import Path
import pyarrow, pyarrow.ipc, pyarrow.parquet
from swebench_sources import records

folder, raw = Path(sys.argv[1]), json.load(sys.stdin)
text = {**raw, **{name: json.dumps(raw[name]) for name in ("FAIL_TO_PASS", "PASS_TO_PASS")}}
timed = {**raw, "created_at": datetime.datetime.fromisoformat(raw["created_at"])}
for name, content in {"hub/data/dev-00000-of-00001": raw, "text/any": text, "timed/any": timed}.items():
    (folder / name).parent.mkdir(parents=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([content]), folder / (name + ".parquet"))
saved = folder / "saved" / "dev" / "data-00000-of-00001.arrow"  # as save_to_disk writes it
saved.parent.mkdir(parents=True)
(folder / "saved" / "dataset_dict.json").write_text('{"splits": ["dev"]}')
(saved.parent / "state.json").write_text("{}")
table = pyarrow.Table.from_pylist([raw])
with pyarrow.OSFile(str(saved), "wb") as file, pyarrow.ipc.new_stream(file, table.schema) as out:
    out.write_table(table)
for place in sorted(folder.iterdir()):
    print(json.dumps([place.name, *([vars(record) for record in records(place)])]))
"""


@pytest.mark.slow  # installs pyarrow
@pytest.mark.timeout(240)
def test_a_table_is_read_like_any_other_form(tmp_path: Path) -> None:
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or "uv"
    words = [uv, "run", "--quiet", "--no-project", "--python", sys.executable, "--with", "pyarrow"]
    have = subprocess.run([*words, "python", "-c", "import pyarrow"], capture_output=True, text=True)
    if have.returncode:
        pytest.skip(f"pyarrow cannot be installed: {have.stderr[-200:]}")
    done = subprocess.run(
        [*words, "python", "-c", TABLES, str(tmp_path)],
        input=json.dumps(RECORD),
        env={**os.environ, "PYTHONPATH": str(PROJECT / "src")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    wanted = json.loads(json.dumps(vars(record_of(RECORD))))
    found = dict(map(json.loads, done.stdout.splitlines()))
    assert {name: record.pop("split") for name, record in found.items()} == {
        "hub": "dev",
        "saved": "dev",
        "text": "test",
        "timed": "test",
    }
    assert found["timed"].pop("created_at") == "2022-08-01T00:00:00+00:00"
    for record in found.values():
        assert record == {name: wanted[name] for name in record}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"instance_id": ""}, "lacks 'instance_id'"),
        ({"instance_id": "../x"}, "must be letters"),
        ({"repo": 3}, "lacks 'repo'"),
        ({"patch": ["x"]}, "'patch' must be a text"),
        ({"FAIL_TO_PASS": "no list"}, "'FAIL_TO_PASS' is a text that is not a JSON list"),
        ({"PASS_TO_PASS": [1]}, "'PASS_TO_PASS' must be a list"),
        ({"runner": "nose"}, "'runner' 'nose' must be"),
    ],
)
def test_a_bad_field_is_named(change: dict[str, Any], said: str) -> None:
    with pytest.raises(BadRecord, match=said):
        record_of({**RECORD, **change})


def test_a_record_does_not_show_its_solution_in_messages() -> None:
    assert "seq[:0]" not in repr(record_of(RECORD))


def test_the_public_image_is_named_after_the_instance() -> None:
    assert public_image("django__django-11099") == "swebench/sweb.eval.x86_64.django_1776_django-11099:latest"


@pytest.mark.parametrize(
    "text",
    [
        "a: 1\nb: [x, 'y, z', {k: v}]\nc: {}\nd:\n",
        "a: |\n  x\n   y\n\n  z\nb: >-\n  one\n  two\n\n  three\nc: |+\n  x\n\n",
        "# c\na: 'it''s' # comment\nb: \"q\\n\\u00e9\"\nc: a#b\nurl: https://x.example/y\n",
        "- a\n- - b\n  - c\n- k: v\n  l: w\n-\n  m: n\n",
        "name: t\ndependencies:\n- python=3.9\n- pip:\n  - a==1.0\nprefix: /x\n",
        yaml.safe_dump(
            {"long": "words and: 'quotes' " * 20, "list": [["#a", "- b", "", None, True, "no"]], "é": 2.5}
        ),
    ],
)
def test_the_yaml_of_task_folders_reads_as_pyyaml_reads_it(text: str) -> None:
    assert swebench_yaml.parse(text) == yaml.safe_load(text)


@pytest.mark.parametrize(
    "text", ["a: &x 1\n", "a: !!str 1\n", "a: 'x\n", "a: 1\n   b: 2\n", "a: 1\na: 2\n", "\ta: 1\n"]
)
def test_yaml_that_is_not_understood_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(swebench_yaml.YamlError, match=r"line \d"):
        swebench_yaml.parse(text)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_yaml_is_refused(text: str) -> None:
    with pytest.raises(swebench_yaml.YamlError):
        swebench_yaml.parse(text)


@pytest.mark.parametrize("time", ["2022-08-01", "2022-08-01T00:00:00Z"])
def test_times_in_yaml_stay_texts(time: str) -> None:
    assert swebench_yaml.parse(f"created_at: {time}\n") == {"created_at": time}


# Patches


def tree(folder: Path, **files: str) -> Path:
    for name, content in files.items():
        file = folder / name.replace("__", "/").replace("_py", ".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    return folder


def test_a_patch_applies_where_its_lines_are(tmp_path: Path) -> None:
    tree(tmp_path, x_py="zero\none\ntwo\nthree\nfour\n")
    assert patches.apply(f"Here is the patch:\n\n{DIFF}", tmp_path) == {"x.py"}
    assert (tmp_path / "x.py").read_text() == "zero\none\n2\nthree\nfour\n"


def test_a_file_has_one_name_however_a_patch_writes_it(tmp_path: Path) -> None:
    tree(tmp_path, sub__x_py="one\ntwo\nthree\n")
    assert patches.apply(DIFF.replace("x.py", "./sub//x.py"), tmp_path) == {"sub/x.py"}
    move = "diff --git a/sub/x.py b/y.py\nrename from ./sub/x.py\nrename to ./y.py\n"
    assert patches.paths(move) == {"sub/x.py", "y.py"}


def test_a_patch_makes_removes_and_moves_files(tmp_path: Path) -> None:
    tree(tmp_path, old_py="a\n", sub__gone_py="b\n")
    text = (
        "diff --git a/old.py b/new.py\nsimilarity index 50%\nrename from old.py\nrename to new.py\n"
        "--- a/old.py\n+++ b/new.py\n@@ -1 +1 @@\n-a\n+A\n\\ No newline at end of file\n"
        "diff --git a/sub/gone.py b/sub/gone.py\ndeleted file mode 100644\n"
        "--- a/sub/gone.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-b\n"
        "diff --git a/run b/run\nnew file mode 100755\n--- /dev/null\n+++ b/run\n@@ -0,0 +1,2 @@\n+1\n+2\n"
        "diff --git a/empty.py b/empty.py\nnew file mode 100644\nindex 0000000..e69de29\n"
    )
    assert patches.apply(text, tmp_path) == {"old.py", "new.py", "sub/gone.py", "run", "empty.py"}
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "new.py": "A",
        "run": "1\n2\n",
        "empty.py": "",
    }
    assert (tmp_path / "run").stat().st_mode & 0o100


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (DIFF.replace("x.py", "../x.py"), "not within the repository"),
        (DIFF.replace("a/x.py", "/etc/x").replace("b/x.py", "/etc/x"), "not within the repository"),
        (DIFF.replace("x.py", ".git/hooks/x"), "not within the repository"),
        (DIFF.replace("x.py", "link/x.py"), "leads over the link"),
        (DIFF.replace("two", "twenty"), "does not apply"),
        (DIFF.replace("x.py", "y.py"), "no file 'y.py'"),
        (DIFF.replace(" three\n", ""), "ends within a change"),
        ("diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+/etc\n", "is a link"),
        ("diff --git a/b b/b\nindex 1..2\nGIT binary patch\nliteral 1\n", "binary patch"),
        ("@@ -1 +1 @@\n-a\n+b\n", "without the name of its file"),
    ],
)
def test_a_patch_that_leads_out_or_does_not_fit_changes_nothing(tmp_path: Path, text: str, said: str) -> None:
    tree(tmp_path, x_py="one\ntwo\nthree\n")
    (tmp_path / "link").symlink_to("/tmp")
    with pytest.raises(patches.PatchError, match=said):
        patches.apply(text, tmp_path)
    assert (tmp_path / "x.py").read_text() == "one\ntwo\nthree\n"


def test_a_patch_that_was_made_gives_what_it_was_made_of(tmp_path: Path) -> None:
    cases: list[tuple[bytes | None, bytes | None]] = [
        (b"a\nb\nc\n", b"a\nB\nc\nd"),
        (b"a", b"a\n"),
        (None, b"new\n"),
        (b"gone\n", None),
        (b"crlf\r\nx\r\n", b"crlf\r\ny\r\n"),
        (b"\xff latin\n", b"\xff latin\nmore\n"),
    ]
    for number, (before, after) in enumerate(cases):
        place = tmp_path / str(number)
        place.mkdir()
        if before is not None:
            (place / "f").write_bytes(before)
        patches.apply(patches.diff("f", before, after, False, False), place)
        assert ((place / "f").read_bytes() if (place / "f").exists() else None) == after


@pytest.mark.parametrize(
    ("path", "is_sealed"),
    [
        *((path, True) for path in ("conftest.py", "a/conftest.py", "pytest.ini", "setup.cfg", "a/tests/x.py")),
        *(
            (path, True)
            for path in ("test_x.py", "a/x_test.py", "sitecustomize.py", "a.egg-info/entry_points.txt")
        ),
        *((path, True) for path in ("pytest.py", "src/_pytest/__init__.py", "test_x.py/y", "x.pth")),
        *((path, False) for path in ("toolz/itertoolz.py", "a/contest.py", "docs/testing.rst", "lib/a/attest.py")),
    ],
)
def test_what_steers_tests_is_sealed(path: str, is_sealed: bool) -> None:
    assert sealing.is_sealed(path) == is_sealed


# Base trees and packages


def sdist(folder: Path, name: str, when: int = 1_600_000_000, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    source = tree(folder.parent / "sources" / name, **(files or {"x_py": name}))
    with tarfile.open(folder / f"{name}.tar.gz", "w:gz") as tar:
        for file in sorted(source.rglob("*")):
            if file.is_file():
                member = tar.gettarinfo(file, f"{name}/{file.relative_to(source)}")
                member.mtime = when
                tar.addfile(member, io.BytesIO(file.read_bytes()))
    return folder


def test_the_newest_release_before_the_record_is_its_sdist(tmp_path: Path) -> None:
    sdists = tmp_path / "sdists"
    for number, year in enumerate((2019, 2021, 2023)):
        sdist(sdists, f"toolz-0.{number}", when=(year - 1970) * 31_556_952)
    sdist(sdists, "other-9.0", when=1_640_000_000)
    record = record_of({**RECORD, "sdist": ""})
    assert bases.sdist_of(record, sdists).name == "toolz-0.1.tar.gz"
    (sdists / "index.json").write_text(json.dumps({"toolz-0.1.tar.gz": "2023-01-01T00:00:00Z"}))
    assert bases.sdist_of(record, sdists).name == "toolz-0.0.tar.gz"
    assert bases.from_sdist(record, sdists, tmp_path / "tree") == "toolz-0.0.tar.gz"
    assert (tmp_path / "tree" / "x.py").read_text() == "toolz-0.0"


def test_a_missing_sdist_says_how_to_fetch_it(tmp_path: Path) -> None:
    with pytest.raises(bases.NoBase, match=r"pip download --no-deps --no-binary :all: toolz==0\.12\.0"):
        bases.sdist_of(record_of(RECORD), tmp_path)
    with pytest.raises(bases.NoBase, match=r"no sdist of 'toolz' from before 2022"):
        bases.sdist_of(record_of({**RECORD, "sdist": ""}), sdist(tmp_path, "toolz-1.0", when=1_700_000_000))


@pytest.mark.parametrize("ending", [".tar.gz", ".zip"])
@pytest.mark.parametrize("sdist", [SDIST, ""], ids=["named", "found"])
def test_an_sdist_that_is_damaged_is_named(tmp_path: Path, ending: str, sdist: str) -> None:
    (tmp_path / f"{SDIST}{ending}").write_bytes(b"half of it")
    with pytest.raises(bases.NoBase, match=rf"toolz-0\.12\.0{ending}' cannot be unpacked: .*; fetch it again"):
        bases.from_sdist(record_of({**RECORD, "sdist": sdist}), tmp_path, tmp_path / "tree")


def test_an_sdist_that_leads_out_of_its_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sdists").mkdir()
    with zipfile.ZipFile(tmp_path / "sdists" / "toolz-0.12.0.zip", "w") as archive:
        archive.writestr("toolz-0.12.0/../../evil.py", "x")
    with pytest.raises(bases.NoBase, match="leads out"):
        bases.from_sdist(record_of(RECORD), tmp_path / "sdists", tmp_path / "tree")
    assert not (tmp_path / "evil.py").exists()


def test_a_mirror_gives_the_commit_without_its_history(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        settings = ["-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "init.defaultBranch=main"]
        return subprocess.run(
            ["git", *settings, *words], cwd=work, check=True, capture_output=True, text=True
        ).stdout

    work = tree(tmp_path / "work", x_py="before", tests__t_py="t")
    (work / ".gitattributes").write_text("tests export-ignore\n")
    git("init", "-q")
    git("add", "-A")
    git("commit", "-q", "-m", "base")
    commit = git("rev-parse", "HEAD").strip()
    tree(work, x_py="after")
    git("commit", "-q", "-a", "-m", "the solution")
    git("clone", "-q", "--mirror", ".", str(tmp_path / "git" / "pytoolz__toolz.git"))

    record = record_of({**RECORD, "base_commit": commit})
    assert bases.from_git(record, [tmp_path / "git"], tmp_path / "tree") == f"git {commit[:12]}"
    assert (tmp_path / "tree" / "x.py").read_text() == "before"
    assert (tmp_path / "tree" / "tests" / "t.py").is_file()
    assert not (tmp_path / "tree" / ".git").exists()
    with pytest.raises(bases.NoBase, match="cannot give"):
        bases.from_git(record_of({**RECORD, "base_commit": "0" * 40}), [tmp_path / "git"], tmp_path / "other")
    with pytest.raises(bases.NoBase, match="git clone --mirror"):
        bases.from_git(record, [tmp_path], tmp_path / "third")
    with pytest.raises(bases.NoBase, match=r"no folder '.*nowhere' in the instance's view; put the mirrors into"):
        bases.from_git(record, [tmp_path / "nowhere"], tmp_path / "third")


def wheel(folder: Path, name: str, version: str, tags: str = "py3-none-any") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-{version}-{tags}.whl", "w") as archive:
        archive.writestr(f"{name}.py", f"version = {version!r}")
        archive.writestr(f"{name}-{version}.data/purelib/{name}_more.py", "")
        archive.writestr(f"{name}-{version}.data/scripts/{name}", "")


def version_of(site: sites.Site, name: str) -> str:
    code = f"import sys, {name}; print({name}.version, *sys.path)"
    done = subprocess.run([site.python, "-I", "-c", code], capture_output=True, text=True, check=True)
    version, *path = done.stdout.split()
    # Nothing of the host's packages is in its sight.
    assert [place for place in path if "site-packages" in place] == [str(site.packages)]
    return version


def test_packages_are_the_newest_wheels_or_those_that_are_pinned(tmp_path: Path) -> None:
    for version in ("1.2", "1.10", "1.9", "2.0rc1"):
        wheel(tmp_path / "wheels", "lib", version)
    wheel(tmp_path / "wheels", "toolz", "9.9")  # the tested project itself
    wheel(tmp_path / "wheels", "native", "1.0", "cp27-cp27m-win_amd64")
    newest = sites.build(record_of(RECORD), [tmp_path], tmp_path / "newest")
    assert version_of(newest, "lib") == "1.10"
    assert not (newest.packages / "toolz.py").exists()
    assert not (newest.packages / "native.py").exists()
    assert (newest.packages / "lib_more.py").exists()

    pinned = "dependencies:\n- pip:\n  - lib==1.9\n  - absent==3\n"
    site = sites.build(record_of({**RECORD, "environment": pinned}), [tmp_path], tmp_path / "pinned")
    assert version_of(site, "lib") == "1.9"
    assert (newest.missing, site.missing) == ("", "absent")
    bare = sites.build(record_of(RECORD), [tmp_path / "nowhere"], tmp_path / "bare")
    assert bare.missing == "all packages of its tests"
    other = record_of({**RECORD, "environment": pinned.replace("1.9", "7")})
    with pytest.raises(sites.NoSite, match=r"pins lib==7, and .* has 1\.10, 1\.2, 1\.9, 2\.0rc1; fetch it"):
        sites.build(other, [tmp_path], tmp_path / "other")


def test_a_folder_of_packages_for_one_instance_comes_before_wheels(tmp_path: Path) -> None:
    wheel(tmp_path / "wheels", "lib", "1.0")
    own = sites.build(record_of(RECORD), [tmp_path], tmp_path / "venvs" / ID)
    (own.packages / "lib.py").write_text("version = 'own'")
    site = sites.build(record_of(RECORD), [tmp_path], tmp_path / "site")
    code = "import lib; print(lib.version)"
    assert subprocess.run([site.python, "-I", "-c", code], capture_output=True, text=True).stdout == "own\n"
