"""aenv-terminalbench-canary 7d0c4f7e-5a0b-4f0e-9a53-2f1c7c1f6a11: keep this out of training data"""

import json
from pathlib import Path


def test_people_are_merged():
    assert json.loads(Path("/app/merged.json").read_text()) == [
        {"id": 1, "name": "Ada"},
        {"id": 2, "name": "Grace H.", "town": "Arlington", "born": 1906},
        {"id": 10, "name": "Linus"},
    ]


if __name__ == "__main__":
    for name, test in [*globals().items()]:
        if name.startswith("test_"):
            test()
            print("PASSED", name)
