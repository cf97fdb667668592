"""`aenv build`: bundle, requirements and image, and what it leaves in config.json."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import aenv as aenv_package
from aenv import __version__
from aenv.cli import image_builder as image
from aenv.cli import wheel
from tests import docker
from tests.command_line import aenv, environ
from tests.system import require

CONFIG = """{
    "name": "my-env", "version": "1.2.0", "tags": ["linux"],
    "unknown": {"kept": [1, 2.5, null, "ü"]},
    "artifacts": [{"id": "7", "type": "other", "content": "kept"}],
    "buildConfig": {"dockerfile": "./Dockerfile", "context": "."},
    "deployConfig": {"cpu": "1"}
}
"""
CODE = """
from aenv import register_tool

@register_tool
def echo(text: str) -> str:
    return text
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project whose image consists of its own files."""
    folder = tmp_path / "my-env"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "my_env.py").write_text(CODE)
    (folder / "config.json").write_text(CONFIG)
    (folder / "Dockerfile").write_text("FROM scratch\nCOPY . /app\n")
    return folder


@pytest.fixture
def without_docker(tmp_path: Path) -> dict[str, str]:
    """Variables with which neither Docker nor podman is found."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "git").symlink_to(shutil.which("git") or "/usr/bin/git")
    return environ(AENV_HOME=str(tmp_path / "home"), PATH=str(tmp_path / "bin"))


def config(folder: Path) -> dict[str, object]:
    values: dict[str, object] = json.loads((folder / "config.json").read_text())
    return values


class TestBundle:
    def test_without_an_engine_the_rest_is_built_and_a_line_says_so(
        self, folder: Path, without_docker: dict[str, str]
    ) -> None:
        done = aenv("build", "--work-dir", folder, env=without_docker)
        assert done.returncode == 0, done.stderr
        assert done.stderr.splitlines() == [
            "config.json:3: unknown: unknown field has no effect",
            "no image was built: neither Docker nor podman nor buildah answers",
        ]
        folder, bundle = done.stdout.splitlines()
        assert folder == "requirements  none"
        assert bundle.startswith("bundle        my-env@1.2.0 (sha256:")

    def test_an_image_that_stays_as_it_was_built_before_is_pointed_out(
        self, folder: Path, without_docker: dict[str, str]
    ) -> None:
        image = '{"id": "", "type": "image", "content": "my-env:1.1.0"}'
        (folder / "config.json").write_text(CONFIG.replace('"artifacts": [', f'"artifacts": [{image}, '))
        done = aenv("build", "--work-dir", folder, env=without_docker)
        assert done.returncode == 0
        assert "config.json still names 'my-env:1.1.0', whose code instances in containers run" in done.stderr

    def test_config_json_says_the_same_as_before_and_what_was_built(
        self, folder: Path, without_docker: dict[str, str]
    ) -> None:
        (folder / "config.json").chmod(0o664)
        aenv("build", "--work-dir", folder, env=without_docker)
        before, after = json.loads(CONFIG), config(folder)
        made, kept = after.pop("artifacts")  # type: ignore[misc]
        assert kept == before.pop("artifacts")[0]
        assert (made["type"], made["id"]) == ("bundle", "my-env@1.2.0")
        assert made["content"].startswith("sha256:")
        assert (list(after), after) == (list(before), before)
        assert (folder / "config.json").read_text() == json.dumps(
            config(folder), indent=2, ensure_ascii=False
        ) + "\n"
        assert stat.S_IMODE((folder / "config.json").stat().st_mode) == 0o664

    @pytest.mark.slow
    def test_a_second_build_changes_nothing_and_a_push_would_send_the_same(
        self, folder: Path, without_docker: dict[str, str]
    ) -> None:
        before = json.loads(aenv("push", folder, "--dry-run", "--json", env=without_docker).stdout)
        aenv("build", "--work-dir", folder, env=without_docker)
        text = (folder / "config.json").read_text()
        assert aenv("build", "--work-dir", folder, env=without_docker).returncode == 0
        assert (folder / "config.json").read_text() == text
        after = json.loads(aenv("push", folder, "--dry-run", "--json", env=without_docker).stdout)
        assert after == before
        assert f"sha256:{after['digest']}" in text

    @pytest.mark.parametrize("flag", ["--image", "--push"])
    def test_an_image_that_is_demanded_and_cannot_be_built_is_a_failure(
        self, folder: Path, without_docker: dict[str, str], flag: str
    ) -> None:
        done = aenv("build", "-w", folder, flag, env=without_docker)
        assert done.returncode == 1
        assert (
            done.stderr.splitlines()[-1]
            == "aenv: cannot build the image: neither Docker nor podman nor buildah answers"
        )
        assert (folder / "config.json").read_text() == CONFIG

    def test_without_a_dockerfile_a_line_names_it(self, folder: Path, without_docker: dict[str, str]) -> None:
        (folder / "Dockerfile").unlink()
        done = aenv("build", "-w", folder, env=without_docker)
        assert done.returncode == 0
        assert done.stderr.splitlines()[-1] == f"no image was built: '{folder}/Dockerfile' does not exist"

    def test_a_dockerfile_that_was_asked_for_and_is_missing_is_a_failure(
        self, folder: Path, without_docker: dict[str, str]
    ) -> None:
        done = aenv("build", "-w", folder, "-f", "deploy/Dockerfile", env=without_docker)
        assert done.returncode == 1
        why = f"aenv: cannot build the image: '{folder}/deploy/Dockerfile' does not exist"
        assert done.stderr.splitlines()[-1] == why
        assert (folder / "config.json").read_text() == CONFIG

    @pytest.mark.slow
    def test_requirements_become_a_folder(
        self, folder: Path, without_docker: dict[str, str], tmp_path: Path
    ) -> None:
        package = tmp_path / "package"
        package.mkdir()
        (package / "pyproject.toml").write_text(
            '[project]\nname = "tiny"\nversion = "1"\n[build-system]\nrequires = []\nbuild-backend = "backend"\n'
            'backend-path = ["."]\n'
        )
        (package / "backend.py").write_text(BACKEND)
        (folder / "requirements.txt").write_text(f"aenvironment\ntiny @ file://{package}\n")
        done = aenv("build", "-w", folder, "--no-image", env=without_docker)
        assert done.returncode == 0, done.stderr
        folder = Path(done.stdout.splitlines()[0].removeprefix("requirements  "))
        assert folder.is_relative_to(tmp_path / "home" / "requirements")
        assert (folder / "tiny.py").read_text() == "here = True\n"


# A build backend of a dozen lines, so that installing needs no package index.
BACKEND = """
import zipfile

def build_wheel(directory, config_settings=None, metadata_directory=None):
    name = "tiny-1-py3-none-any.whl"
    files = {
        "tiny.py": "here = True\\n",
        "tiny-1.dist-info/METADATA": "Metadata-Version: 2.1\\nName: tiny\\nVersion: 1\\n",
        "tiny-1.dist-info/WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
        "tiny-1.dist-info/RECORD": "",
    }
    with zipfile.ZipFile(f"{directory}/{name}", "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
    return name
"""


class TestNames:
    def test_an_image_is_named_as_in_the_documents(self) -> None:
        assert image.names("docker.io", "aenv", "echo", ["1.0.0", "latest"]) == [
            "docker.io/aenv/echo:1.0.0",
            "docker.io/aenv/echo:latest",
        ]
        assert image.names("reg.example.com:5000", "", "echo", ["1"]) == ["reg.example.com:5000/echo:1"]

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            ("docker.io/aenv/echo:1", "r.io/ns/echo:1"),
            ("aenv/echo:1", "r.io/ns/echo:1"),
            ("echo:1", "r.io/ns/echo:1"),
            ("localhost:5000/a/b/echo:1", "r.io/ns/echo:1"),
        ],
    )
    def test_an_image_moves_to_another_registry(self, before: str, after: str) -> None:
        (moved,) = image.moved([{"type": "image", "content": before}], "r.io", "ns")
        assert moved["content"] == after

    def test_only_the_part_that_is_named_moves(self) -> None:
        images = [{"type": "image", "content": "docker.io/aenv/echo:1"}, {"type": "other", "content": "a/b"}]
        assert [each["content"] for each in image.moved(images, "r.io", None)] == ["r.io/aenv/echo:1", "a/b"]
        assert [each["content"] for each in image.moved(images, None, "ns")] == ["docker.io/ns/echo:1", "a/b"]
        assert image.moved(images, None, None) == images


class TestWheel:
    def test_it_holds_every_file_and_the_same_files_give_the_same_wheel(self, tmp_path: Path) -> None:
        with wheel.beside(tmp_path):
            (made,) = (tmp_path / ".aenv").iterdir()
            first = made.read_bytes()
            with zipfile.ZipFile(made) as archive:
                names = set(archive.namelist())
                record = archive.read(f"aenvironment-{__version__}.dist-info/RECORD").decode()
        assert {line.partition(",")[0] for line in record.splitlines()} == names
        package = Path(aenv_package.__file__).parent
        sources = {path.relative_to(package.parent).as_posix() for path in package.rglob("*.py")}
        assert sources <= names
        assert not [name for name in names if "__pycache__" in name]
        assert list(tmp_path.iterdir()) == []
        assert wheel.write(tmp_path).read_bytes() == first

    @pytest.mark.slow  # a virtual environment is made
    def test_it_can_be_installed(self, tmp_path: Path) -> None:
        made = wheel.write(tmp_path)
        target = tmp_path / "target"
        install = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-deps", "--target", target, made]
        subprocess.run(install, check=True)
        asked = [target / "bin" / "aenv", "version"]
        done = subprocess.run(asked, env=environ(PYTHONPATH=str(target)), capture_output=True, text=True)
        assert f"installed from '{made}'" in done.stdout, done.stderr

    def test_files_of_the_project_stay(self, tmp_path: Path) -> None:
        (tmp_path / ".aenv").mkdir()
        (tmp_path / ".aenv" / "cli_config.json").write_text("{}")
        with wheel.beside(tmp_path):
            assert len(list((tmp_path / ".aenv").iterdir())) == 2
        assert [path.name for path in (tmp_path / ".aenv").iterdir()] == ["cli_config.json"]


@pytest.mark.slow  # a Docker engine takes seconds to start
@pytest.mark.timeout(120)
class TestImage:
    @pytest.fixture(scope="class")
    @classmethod
    def host(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
        with docker.engine(tmp_path_factory.mktemp("docker")) as host:
            yield host

    @pytest.fixture
    def ask(self, host: str) -> Callable[..., str]:
        def ask(*arguments: str) -> str:
            command = ["docker", "--host", host, *arguments]
            return subprocess.run(command, check=True, capture_output=True, text=True).stdout

        return ask

    @pytest.fixture
    def variables(self, host: str, tmp_path: Path) -> dict[str, str]:
        return environ(AENV_HOME=str(tmp_path / "home"), DOCKER_HOST=host)

    def test_an_image_is_built_and_written_down(
        self, folder: Path, variables: dict[str, str], ask: Callable[..., str]
    ) -> None:
        done = aenv("build", "-w", folder, env=variables)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[0] == "image         docker.io/aenv/my-env:1.2.0"
        assert ask("image", "inspect", "--format", "{{.Architecture}}", "aenv/my-env:1.2.0").strip()
        told = json.loads(ask("image", "inspect", "--format", "{{json .Config.Labels}}", "aenv/my-env:1.2.0"))
        bundle, first, _ = config(folder)["artifacts"]  # type: ignore[misc]
        assert told["aenv.bundle"] == bundle["content"]
        assert (told["aenv.environment"], told["org.opencontainers.image.version"]) == ("my-env@1.2.0", "1.2.0")
        assert first == {"id": "", "type": "image", "content": "docker.io/aenv/my-env:1.2.0"}
        assert bundle["type"] == "bundle"

    def test_every_option_of_the_image_works(
        self, folder: Path, variables: dict[str, str], ask: Callable[..., str]
    ) -> None:
        (folder / "deploy").mkdir()
        (folder / "Dockerfile").rename(folder / "deploy" / "Other")
        options = [
            "-n",
            "renamed",
            "-t",
            "a",
            "-t",
            "b",
            "-r",
            "reg.example.com",
            "-s",
            "team",
            "-f",
            "deploy/Other",
        ]
        done = aenv("build", "-w", folder, *options, "-p", "linux/amd64", env=variables)
        assert done.returncode == 0, done.stderr
        names = ["reg.example.com/team/renamed:a", "reg.example.com/team/renamed:b"]
        assert done.stdout.splitlines()[:2] == [f"image         {name}" for name in names]
        assert len(set(ask("image", "inspect", "--format", "{{.Id}}", *names).split())) == 1
        assert [each["content"] for each in config(folder)["artifacts"]][1:3] == names  # type: ignore[union-attr]

    def test_layers_are_used_again_unless_told_otherwise(
        self, folder: Path, variables: dict[str, str], ask: Callable[..., str]
    ) -> None:
        def build(*options: str) -> str:
            aenv("build", "-w", folder, *options, env=variables)
            return ask("image", "inspect", "--format", "{{.RootFS.Layers}} {{.Id}}", "aenv/my-env:1.2.0")

        build()  # writes config.json, which is among the files of the image
        first = build()
        assert build() == first
        assert build("--no-cache") != first

    def test_the_socket_of_the_settings_is_used(self, folder: Path, host: str, tmp_path: Path) -> None:
        variables = environ(AENV_HOME=str(tmp_path / "home"))
        aenv("config", "set", "build_config.build_args.socket", host, env=variables)
        assert aenv("build", "-w", folder, "--image", env=variables).returncode == 0

    def test_a_dockerfile_that_fails_ends_the_build_and_changes_nothing(
        self, folder: Path, variables: dict[str, str]
    ) -> None:
        (folder / "Dockerfile").write_text("FROM scratch\nCOPY nothing /app\n")
        done = aenv("build", "-w", folder, env=variables)
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1].startswith("aenv: 'docker build' failed with exit code")
        assert done.stdout == ""
        assert (folder / "config.json").read_text() == CONFIG

    def test_an_image_gets_the_wheel_of_the_aenv_that_builds_it(
        self, folder: Path, variables: dict[str, str], ask: Callable[..., str], tmp_path: Path
    ) -> None:
        (folder / "Dockerfile").write_text("FROM scratch\nCOPY config.json .aenv/*.whl /app/\n")
        done = aenv("build", "-w", folder, env=variables)
        assert done.returncode == 0, done.stderr
        assert not (folder / ".aenv").exists()
        container = ask("create", "aenv/my-env:1.2.0", "none").strip()
        name = f"aenvironment-{__version__}-py3-none-any.whl"
        ask("cp", f"{container}:/app/{name}", str(tmp_path / name))
        with zipfile.ZipFile(tmp_path / name) as archive:
            assert "aenv/cli/main.py" in archive.namelist()

    def test_a_dockerfile_that_would_install_another_aenv_is_warned_about(
        self, folder: Path, variables: dict[str, str]
    ) -> None:
        (folder / "Dockerfile").write_text("FROM scratch\nCOPY . /app\n# RUN pip install -r requirements.txt\n")
        done = aenv("build", "-w", folder, env=variables)
        assert "does not copy .aenv/*.whl" in done.stderr

    def test_an_image_is_pushed_with_the_login_of_the_settings_which_is_forgotten(
        self, folder: Path, variables: dict[str, str], tmp_path: Path
    ) -> None:
        docker_config = tmp_path / "docker-config"
        variables |= {"DOCKER_CONFIG": str(docker_config), "HOME": str(tmp_path / "user")}
        with docker.registry(tmp_path) as address:
            for key, value in {"host": address, "username": docker.USER, "password": "wrong"}.items():
                aenv("config", "set", f"build_config.registry.{key}", value, env=variables)
            refused = aenv("build", "-w", folder, "--push", env=variables)
            assert refused.returncode == 1
            assert refused.stderr.splitlines()[-1].startswith("aenv: 'docker login' failed")
            aenv("config", "set", "build_config.registry.password", docker.PASSWORD, env=variables)
            done = aenv("build", "-w", folder, "--push", env=variables)
            assert done.returncode == 0, done.stderr
            assert done.stdout.splitlines()[0] == f"image         {address}/aenv/my-env:1.2.0 (pushed)"
        assert (tmp_path / "images/docker/registry/v2/repositories/aenv/my-env/_manifests/tags/1.2.0").is_dir()
        kept = [path for path in (docker_config, tmp_path / "user") for path in path.rglob("*") if path.is_file()]
        assert [path for path in kept if b"auth" in path.read_bytes()] == []
        assert not [name for name in os.listdir("/tmp") if name.startswith("aenv-login-")]


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="buildah needs root, or user namespaces")
def test_without_docker_an_image_is_built_by_buildah_just_the_same(folder: Path, tmp_path: Path) -> None:
    program = require("buildah", "buildah")
    (tmp_path / "storage.conf").write_text(
        f'[storage]\ndriver = "vfs"\ngraphroot = "{tmp_path}/kept"\nrunroot = "{tmp_path}/run"\n'
    )
    (tmp_path / "bin").mkdir()
    for name in ("buildah", "git"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name) or name)
    variables = environ(
        AENV_HOME=str(tmp_path / "home"),
        PATH=str(tmp_path / "bin"),
        CONTAINERS_STORAGE_CONF=str(tmp_path / "storage.conf"),
    )

    def layers_of(tag: str) -> tuple[dict[str, Any], list[Any]]:
        words = [program, "inspect", "--type", "image", f"docker.io/aenv/my-env:{tag}"]
        told = json.loads(subprocess.run(words, env=variables, check=True, capture_output=True).stdout)
        image = told["OCIv1"]
        return image, [step["created"] for step in image["history"]]

    (folder / "Dockerfile").write_text("FROM scratch\nCOPY src /app\n")
    for options in (("-t", "a", "-t", "b"), ("-t", "c"), ("-t", "d", "--no-cache", "-p", "linux/arm64")):
        done = aenv("build", "-w", folder, "--image", *options, env=variables)
        assert done.returncode == 0, done.stderr
    assert layers_of("a") == layers_of("b")
    (first, made), (_, again), (other, anew) = (layers_of(tag) for tag in "acd")
    bundle = config(folder)["artifacts"][0]["content"]  # type: ignore[index]
    assert other["config"]["Labels"]["aenv.bundle"] == bundle
    assert (first["config"]["Labels"]["aenv.environment"], other["architecture"]) == ("my-env@1.2.0", "arm64")
    assert made[0] == again[0] != anew[0]  # the layer of the files was used again, and then not
