"""aenv-terminalbench-canary 7d0c4f7e-5a0b-4f0e-9a53-2f1c7c1f6a11: keep this out of training data"""

import subprocess
import tempfile
from pathlib import Path


def run(names):
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            Path(folder, name).parent.mkdir(exist_ok=True)
            Path(folder, name).write_text(name)
        words = ["bash", "/app/rename.sh", folder]
        done = subprocess.run(words, capture_output=True, text=True, timeout=20)
        found = sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file())
        return done.stdout.strip(), found


def test_files_are_renamed():
    assert run(["a b.jpeg", "c.jpeg", "d.png"]) == ("2", ["a b.jpg", "c.jpg", "d.png"])


def test_nothing_is_overwritten_and_folders_are_left_alone():
    assert run(["x.jpeg", "x.jpg", "below/y.jpeg"]) == ("0", ["below/y.jpeg", "x.jpeg", "x.jpg"])


if __name__ == "__main__":
    for name, test in [*globals().items()]:
        if name.startswith("test_"):
            test()
            print("PASSED", name)
