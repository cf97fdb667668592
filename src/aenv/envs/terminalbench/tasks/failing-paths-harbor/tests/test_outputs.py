"""aenv-terminalbench-canary 7d0c4f7e-5a0b-4f0e-9a53-2f1c7c1f6a11: keep this out of training data"""

from pathlib import Path


def test_the_table():
    lines = Path("/app/failing.csv").read_text().split()
    assert lines == ["path,count", "/pay,3", "/cart,1", "/search,1"]


if __name__ == "__main__":
    for name, test in [*globals().items()]:
        if name.startswith("test_"):
            test()
            print("PASSED", name)
