"""aenv-terminalbench-canary 7d0c4f7e-5a0b-4f0e-9a53-2f1c7c1f6a11: keep this out of training data"""

from pathlib import Path


def test_the_greeting():
    assert Path("/app/out/hello.txt").read_text() == "Hello, terminal!\n"


def test_the_notes_were_moved():
    assert Path("/app/out/notes.txt").read_text() == "milk\neggs\nbread\n"
    assert not Path("/app/notes.txt").exists()


if __name__ == "__main__":
    for name, test in [*globals().items()]:
        if name.startswith("test_"):
            test()
            print("PASSED", name)
