"""aenv-terminalbench-canary 7d0c4f7e-5a0b-4f0e-9a53-2f1c7c1f6a11: keep this out of training data"""

import subprocess
import sys


def median(text):
    words = [sys.executable, "-I", "/app/median.py"]
    return subprocess.run(words, input=text, capture_output=True, text=True, timeout=20).stdout.strip()


def test_odd_and_even_counts():
    assert median("10\n9\n2\n") == "9"
    assert median("4\n1\n3\n2\n") == "2.5"
    assert median("1\n5\n") == "3"


def test_empty_lines_and_no_numbers():
    assert median("\n7\n\n") == "7"
    assert median("") == "none"


if __name__ == "__main__":
    for name, test in [*globals().items()]:
        if name.startswith("test_"):
            test()
            print("PASSED", name)
