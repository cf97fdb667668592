"""A record of our own against toolz 0.12.0, and the data folder that holds it.

The problem is a real one of that release, found and worded by us: `tail(0, seq)` gives all of a sequence.
"""

from __future__ import annotations

import compileall
import contextlib
import json
import py_compile
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

import aenv

PROJECT = Path(aenv.__file__).parent / "envs" / "swebench"
if str(PROJECT / "src") not in sys.path:
    sys.path.insert(0, str(PROJECT / "src"))

SDIST = "toolz-0.12.0"
PYTEST = "8.3.5"  # the last that needs no pygments, which agents would be sent with every task
ID = "pytoolz__toolz-1"
GOLD = """\
diff --git a/toolz/itertoolz.py b/toolz/itertoolz.py
--- a/toolz/itertoolz.py
+++ b/toolz/itertoolz.py
@@ -339,6 +339,8 @@ def tail(n, seq):
         take
     \"\"\"
     try:
+        if n == 0:
+            return seq[:0]
         return seq[-n:]
     except (TypeError, KeyError):
         return tuple(collections.deque(seq, n))
"""
TEST_PATCH = """\
diff --git a/toolz/tests/test_itertoolz.py b/toolz/tests/test_itertoolz.py
--- a/toolz/tests/test_itertoolz.py
+++ b/toolz/tests/test_itertoolz.py
@@ -164,6 +164,8 @@ def test_tail():
     assert list(tail(3, 'ABCDE')) == list('CDE')
     assert list(tail(3, iter('ABCDE'))) == list('CDE')
     assert list(tail(2, (3, 2, 1))) == list((2, 1))
+    assert list(tail(0, (3, 2, 1))) == []
+    assert tail(0, 'ABC') == ''
{blank}
{blank}
 def test_drop():
diff --git a/toolz/tests/test_tail.py b/toolz/tests/test_tail.py
new file mode 100644
--- /dev/null
+++ b/toolz/tests/test_tail.py
@@ -0,0 +1,13 @@
+import pytest
+
+from toolz import tail
+
+
+@pytest.mark.parametrize('seq', ['', 'one word', 'two more words'])
+def test_nothing_is_left(seq):
+    assert tail(0, seq) == ''
+
+
+@pytest.mark.skipif(True, reason='never')
+def test_skipped():
+    assert False
""".replace("{blank}", " ")  # what an editor would strip
RECORD: dict[str, Any] = {
    "instance_id": ID,
    "repo": "pytoolz/toolz",
    "base_commit": "",
    "version": "0.12",
    "created_at": "2022-08-01T00:00:00Z",
    "sdist": SDIST,
    "problem_statement": "tail(0, seq) should be empty, and is the whole sequence: tail(0, 'ABC') gives 'ABC'.",
    "hints_text": "Slices that begin with -0 begin with 0.",
    "patch": GOLD,
    "test_patch": TEST_PATCH,
    # The last one ends within its parameter, as names do in data sets that were made from logs.
    "FAIL_TO_PASS": [
        "toolz/tests/test_itertoolz.py::test_tail",
        "toolz/tests/test_tail.py::test_nothing_is_left[two",
    ],
    "PASS_TO_PASS": [
        "toolz/tests/test_itertoolz.py::test_take",
        "toolz/tests/test_itertoolz.py::test_drop",
    ],
}
# Not among those above: a log does not name what is skipped, and a verdict takes one run more to find out.
SKIPPED = "toolz/tests/test_tail.py::test_skipped"


def fetched(cache: Path, *words: str) -> list[Path]:
    """What pip downloads, kept in `cache` for the next time."""
    if not any(cache.iterdir()):
        uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or "uv"
        command = [uv, "tool", "run", "--with", "setuptools", "pip", "download", "--quiet", "--dest", str(cache)]
        done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=120)
        if done.returncode:
            shutil.rmtree(cache)
            pytest.fail(f"pip download {' '.join(words)} failed: {done.stderr[-500:]}")
    return sorted(cache.iterdir())


def wheels(cache: pytest.Cache, version: str = PYTEST) -> list[Path]:
    """The wheels of a pytest, and of what it needs."""
    return fetched(cache.mkdir(f"swebench-pytest-{version}"), "--only-binary", ":all:", f"pytest=={version}")


def installed(cache: pytest.Cache, version: str = PYTEST) -> Path:
    """A folder with the same, unpacked and compiled.

    Tests cannot write beside their packages, so that each run of them would compile pytest anew.
    """
    done = cache.mkdir(f"swebench-site-{version}") / str(sys.implementation.cache_tag)
    if not done.is_dir():
        with tempfile.TemporaryDirectory(dir=done.parent) as folder:
            new = Path(folder, "new")
            for wheel in wheels(cache, version):
                with zipfile.ZipFile(wheel) as archive:
                    archive.extractall(new)
            # Valid whatever the times of its files are: images that are made of them have none.
            unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
            compileall.compile_dir(new, quiet=2, invalidation_mode=unchecked)
            with contextlib.suppress(OSError):  # another process may have been faster
                new.rename(done)
    return done


def make_data(folder: Path, cache: pytest.Cache) -> Path:
    """A data folder with our record, its release and the packages of its tests; wheels, for other records."""
    words = ("--no-deps", "--no-binary", ":all:", "--no-build-isolation", "toolz==0.12.0")
    sdists = fetched(cache.mkdir(f"swebench-{SDIST}"), *words)
    for name, files in (("sdists", sdists), ("wheels", wheels(cache))):
        (folder / name).mkdir(parents=True)
        for file in files:
            shutil.copy(file, folder / name)
    minor = f"python{sys.version_info.major}.{sys.version_info.minor}"
    shutil.copytree(installed(cache), folder / "venvs" / ID / "lib" / minor / "site-packages")
    (folder / "records.jsonl").write_text(json.dumps(RECORD) + "\n")
    return folder
