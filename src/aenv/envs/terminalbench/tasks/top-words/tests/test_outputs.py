"""aenv-terminalbench-canary 7d0c4f7e-5a0b-4f0e-9a53-2f1c7c1f6a11: keep this out of training data"""

from pathlib import Path


def test_the_three_most_frequent_words():
    assert Path("/app/top.txt").read_text().split("\n")[:3] == ["the 7", "wind 4", "hill 3"]
    assert len(Path("/app/top.txt").read_text().split()) == 6


if __name__ == "__main__":
    for name, test in [*globals().items()]:
        if name.startswith("test_"):
            test()
            print("PASSED", name)
