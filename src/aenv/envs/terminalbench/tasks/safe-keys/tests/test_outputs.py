"""aenv-terminalbench-canary 7d0c4f7e-5a0b-4f0e-9a53-2f1c7c1f6a11: keep this out of training data"""

from pathlib import Path


def mode(path):
    return oct(Path("/app/keys", path).stat().st_mode & 0o777)


def test_the_keys_are_private():
    assert {mode("main.key"), mode("spare.key")} == {"0o600"}


def test_the_rest():
    assert (mode("main.pub"), mode("rotate.sh"), mode("")) == ("0o644", "0o700", "0o700")


if __name__ == "__main__":
    for name, test in [*globals().items()]:
        if name.startswith("test_"):
            test()
            print("PASSED", name)
