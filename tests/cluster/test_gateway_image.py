"""The gateway's image, built of this checkout by its Dockerfile with a Docker of the tests' own, and run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from aenv import __version__
from tests import docker

ROOT = Path(__file__).parents[2]
BASE = "aenv.test/python:1"
GATEWAY = "aenv.test/gateway:1"
_PACKAGES = f"/usr/local/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
# As python:slim is: with pip, which has the settings of this machine's, and without our package.
PIP = f"""\
FROM {docker.BASE_IMAGE}
RUN rm -r {_PACKAGES}/aenv {_PACKAGES}/aenvironment-*
COPY pip {_PACKAGES}/
COPY etc /etc/
COPY bin /usr/bin/
"""
# Asks the server as a client does: without a network, so from inside of its container.
ASK = "import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:8080/ready').read().decode())"


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    with docker.engine_with_base_image() as host:
        yield host


@pytest.fixture(scope="module")
def image(host: str) -> str:
    with TemporaryDirectory() as folder:
        context = Path(folder)
        install = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--target", context / "pip", "pip"]
        subprocess.run(install, check=True)
        (context / "etc" / "ssl" / "certs").mkdir(parents=True)
        for file in ("pip.conf", "ssl/certs/ca-certificates.crt"):
            if Path("/etc", file).exists():
                shutil.copy2(Path("/etc", file), context / "etc" / file)
        (context / "bin").mkdir()
        shutil.copy2("/bin/chown", context / "bin" / "chown")
        (context / "Dockerfile").write_text(PIP)
        docker.ask(host, "build", "--tag", BASE, folder)
    words = ["build", "--network", "host", "--build-arg", f"BASE={BASE}", "--tag", GATEWAY]
    done = subprocess.run(
        ["docker", "--host", host, *words, "--file", ROOT / "deploy" / "gateway.Dockerfile", ROOT],
        capture_output=True,
        text=True,
        env={**os.environ, "DOCKER_BUILDKIT": "0"},
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return GATEWAY


def test_it_has_our_own_wheel_with_all_that_a_gateway_may_load(host: str, image: str) -> None:
    check = (
        "import aenv, boto3, lightkube, os, redis; print(aenv.__version__, os.getuid(), os.environ['AENV_HOME'])"
    )
    said = docker.ask(host, "run", "--rm", "--network", "none", image, "python3", "-c", check)
    assert said.split() == [__version__, "10001", "/var/lib/aenv"]
    files = docker.ask(host, "run", "--rm", "--network", "none", image, "sh", "-c", "ls /src /tmp; aenv version")
    assert "wheel" not in files.splitlines()


def test_it_runs_a_gateway_with_a_read_only_root_that_is_not_root(host: str, image: str) -> None:
    volumes = ["--read-only", "--tmpfs", "/tmp", "--volume", "/var/lib/aenv"]
    serve = [
        "sh",
        "-c",
        "aenv token create --user root --role admin >&2 && exec aenv serve --engine process --host 0.0.0.0",
    ]
    options = ["--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--network", "none", *volumes]
    id = docker.ask(host, "run", "--detach", *options, image, *serve).strip()
    try:
        with subprocess.Popen(
            ["docker", "--host", host, "logs", "--follow", id], stderr=subprocess.PIPE, text=True
        ) as log:
            assert log.stderr
            said = []
            for line in log.stderr:
                said.append(line)
                if line.startswith("engine"):
                    break
            log.kill()
        assert said[-1].startswith("engine   process"), "".join(said)
        assert '"status":"ready"' in docker.ask(host, "exec", id, "python3", "-c", ASK)
    finally:
        docker.ask(host, "rm", "--force", "--volumes", id)
