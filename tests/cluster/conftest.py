"""A real cluster for the tests of this folder: started once, with an image of the runtime of this checkout.

`AENV_TEST_KUBECONFIG` names a kubeconfig of a running test cluster instead, in which the image is loaded already.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts" / "lib" / "cluster"
BASE_IMAGE = "aenv.test/base:1"
OTHER_IMAGE = "aenv.test/other:1"
"""With busybox and the file /etc/mark, and without Python."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.cluster)
            item.add_marker(pytest.mark.timeout(300))


@dataclass(frozen=True)
class LocalCluster:
    """A running cluster, and what can be done to it."""

    kubeconfig: Path
    folder: Path
    say: Callable[[str], None]
    """`stop kubelet`, `start apiserver`, `start node2`, `load FILE`."""

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        command = ["kubectl", f"--kubeconfig={self.kubeconfig}", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, input=stdin)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
        return done.stdout


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    if given := os.environ.get("AENV_TEST_KUBECONFIG"):
        path = Path(given)
        yield LocalCluster(path, path.parent, _say_to_given)
        return
    if os.geteuid() != 0:
        pytest.skip("only root can make the namespaces of a cluster; run: sudo scripts/test --cluster")
    cached = subprocess.run([SCRIPTS / "build", "--cached"], capture_output=True, text=True)
    if cached.returncode:
        pytest.skip(cached.stderr.strip())
    archive = tmp_path_factory.mktemp("image") / "base.tar"
    subprocess.run([sys.executable, SCRIPTS / "base_image.py", BASE_IMAGE, archive], check=True)
    other = make_other_image(archive.parent)
    process = subprocess.Popen(
        [sys.executable, SCRIPTS / "cluster.py", "run"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin and process.stdout
    try:
        line = process.stdout.readline()
        assert line, "the cluster did not start"
        said = json.loads(line)
        local = LocalCluster(
            Path(said["kubeconfig"]), Path(said["folder"]), _Commands(process.stdin, process.stdout)
        )
        for loaded in (archive, other):
            local.say(f"load {loaded}")
            loaded.unlink()
        yield local
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


def make_other_image(folder: Path) -> Path:
    """The archive of OTHER_IMAGE, which environments and sidecars are that have nothing of ours."""
    root = folder / "other"
    for part in ("bin", "etc", "tmp", "root"):
        (root / part).mkdir(parents=True)
    shutil.copy2(shutil.which("busybox") or "/bin/busybox", root / "bin" / "busybox")
    for applet in subprocess.run(["busybox", "--list"], capture_output=True, text=True, check=True).stdout.split():
        if not (root / "bin" / applet).exists():
            (root / "bin" / applet).symlink_to("busybox")
    (root / "etc" / "mark").write_text("marked\n")
    archive = folder / "other.tar"
    command = [sys.executable, SCRIPTS / "image.py", root, OTHER_IMAGE, archive]
    subprocess.run([*map(str, command), "sleep", "3600"], check=True)
    return archive


@dataclass(frozen=True)
class _Commands:
    to: IO[str]
    answers: IO[str]

    def __call__(self, line: str) -> None:
        self.to.write(f"{line}\n")
        self.to.flush()
        answer = self.answers.readline().strip()
        assert answer == "ok", f"{line}: {answer}"


def _say_to_given(line: str) -> None:
    pytest.skip("the cluster that was given takes no commands")
