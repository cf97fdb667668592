"""aenv-terminalbench-canary 7d0c4f7e-5a0b-4f0e-9a53-2f1c7c1f6a11: keep this out of training data"""

import subprocess
from pathlib import Path


def service(word):
    words = ["bash", "/app/service.sh", word]
    return subprocess.run(words, capture_output=True, text=True, timeout=20).stdout.strip()


def test_it_starts_once_and_stops():
    try:
        assert [service("status"), service("start"), service("start")] == ["stopped", "started", "running"]
        pid = Path("/app/service.pid").read_text().strip()
        assert Path("/proc", pid, "cmdline").read_bytes().split(b"\0")[:2] == [b"sleep", b"1000"]
    finally:
        assert service("stop") == "stopped"
    assert not Path("/app/service.pid").exists()
    assert service("status") == "stopped"


def test_a_process_that_is_gone_counts_as_stopped():
    Path("/app/service.pid").write_text("4194303")
    assert service("status") == "stopped"
    Path("/app/service.pid").unlink()


if __name__ == "__main__":
    for name, test in [*globals().items()]:
        if name.startswith("test_"):
            test()
            print("PASSED", name)
