"""aenv-terminalbench-canary 7d0c4f7e-5a0b-4f0e-9a53-2f1c7c1f6a11: keep this out of training data"""

from pathlib import Path


def test_the_settings():
    assert Path("/app/settings.env").read_text().splitlines() == [
        "SERVER_HOST=0.0.0.0",
        "SERVER_MAX_CLIENTS=64",
        "DATA_BASE_URL=sqlite:///x?mode=ro",
        "DATA_BASE_USER=app user",
    ]


if __name__ == "__main__":
    for name, test in [*globals().items()]:
        if name.startswith("test_"):
            test()
            print("PASSED", name)
