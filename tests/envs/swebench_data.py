"""A record of our own against toolz 0.12.0, and the data folder that holds it.

The problem is a real one of that release, found and worded by us: `tail(0, seq)` gives all of a sequence.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import aenv

PROJECT = Path(aenv.__file__).parent / "envs" / "swebench"
if str(PROJECT / "src") not in sys.path:
    sys.path.insert(0, str(PROJECT / "src"))

SDIST = "toolz-0.12.0"
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
        "toolz/tests/test_tail.py::test_skipped",
    ],
}


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


def make_data(folder: Path, cache: pytest.Cache, record: dict[str, Any] = RECORD) -> Path:
    """A data folder with the record, its release, and the wheels that its tests need."""
    sdists = fetched(
        cache.mkdir(f"swebench-{SDIST}"),
        *("--no-deps", "--no-binary", ":all:", "--no-build-isolation"),
        "toolz==0.12.0",
    )
    wheels = fetched(cache.mkdir("swebench-pytest-8"), "--only-binary", ":all:", "pytest==8.4.2")
    for name, files in (("sdists", sdists), ("wheels", wheels)):
        (folder / name).mkdir(parents=True)
        for file in files:
            shutil.copy(file, folder / name)
    (folder / "records.jsonl").write_text(json.dumps(record) + "\n")
    return folder
