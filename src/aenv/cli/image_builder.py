"""Container images, made by Docker, podman or buildah as child processes. What they print goes to stderr."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..base import settings
from ..base.config import Project
from . import output
from .config_file import ImageRegistry

_PROBE_TIMEOUT = 20.0  # seconds


@dataclass(frozen=True)
class ImageOptions:
    """How an image is built."""

    labels: Mapping[str, str]
    platform: str | None = None
    cache: bool = True
    """Whether layers of earlier builds are used again."""


def labels(project: Project, digest: str) -> dict[str, str]:
    """What an image says of itself: which bundle it was made of."""
    return {
        "aenv.bundle": f"sha256:{digest}",
        "aenv.environment": str(project.ref),
        "org.opencontainers.image.title": project.name,
        "org.opencontainers.image.version": project.version,
    }


@dataclass(frozen=True)
class Builder:
    """A program that builds images, and whose engine answers."""

    command: tuple[str, ...]

    def build(self, names: Sequence[str], context: Path, dockerfile: Path, wanted: ImageOptions) -> None:
        tags = [word for name in names for word in ("--tag", name)]
        labels = [word for name, value in wanted.labels.items() for word in ("--label", f"{name}={value}")]
        chosen = ["--platform", wanted.platform] if wanted.platform else []
        chosen += [] if wanted.cache else ["--no-cache"]
        if wanted.cache and Path(self.command[0]).name == "buildah":
            chosen += ["--layers"]  # the others keep layers, and use them again, by default
        self._run("build", *tags, *labels, *chosen, "--file", str(dockerfile), str(context))

    def push(self, names: Sequence[str], registry: ImageRegistry) -> None:
        """Push the images; the login, if the registry takes one, is forgotten afterwards."""
        if not registry.username:
            for name in names:
                self._run("push", name)
            return
        with tempfile.TemporaryDirectory(prefix="aenv-login-") as folder:
            logins = {"DOCKER_CONFIG": folder, "REGISTRY_AUTH_FILE": f"{folder}/auth.json"}
            login = ("login", "--username", registry.username, "--password-stdin", registry.host)
            self._run(*login, typed=registry.password, **logins)
            for name in names:
                self._run("push", name, **logins)

    def _run(self, *arguments: str, typed: str = "", **variables: str) -> None:
        done = subprocess.run(
            [*self.command, *arguments],
            env={**settings.variables(), **variables},
            input=typed.encode(),
            stdout=sys.stderr.fileno(),
        )
        if done.returncode:
            shown = " ".join((Path(self.command[0]).name, arguments[0]))
            raise output.Failure(f"'{shown}' failed with exit code {done.returncode}; see above")


def builder(docker_socket: str) -> Builder | None:
    """Docker, podman or buildah, the first that answers; without a socket, Docker chooses its own."""
    chosen = ("--host", docker_socket) if docker_socket else ()
    for command in (("docker", *chosen), ("podman",), ("buildah",)):
        path = shutil.which(command[0])
        if path and _answers(path, *command[1:]):
            return Builder((path, *command[1:]))
    return None


def _answers(*command: str) -> bool:
    # Docker asks its engine for this one; the others are the program itself.
    try:
        done = subprocess.run([*command, "info"], capture_output=True, timeout=_PROBE_TIMEOUT)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def names(registry: str, namespace: str, name: str, tags: Sequence[str]) -> list[str]:
    """ "docker.io/aenv/echo:1.0.0", one for each tag; a part that is empty is left out."""
    return ["/".join(part for part in (registry, namespace, name) if part) + f":{tag}" for tag in tags]


def moved(
    artifacts: Sequence[Mapping[str, str]], registry: str | None, namespace: str | None
) -> list[dict[str, str]]:
    """The artifacts, with images at another registry or in another namespace where one is named."""
    if not (registry or namespace):
        return [dict(artifact) for artifact in artifacts]
    return [
        {**artifact, "content": _moved(artifact.get("content", ""), registry, namespace)}
        if artifact.get("type") == "image"
        else dict(artifact)
        for artifact in artifacts
    ]


def _moved(image: str, registry: str | None, namespace: str | None) -> str:
    *where, name = image.split("/")
    # As Docker reads it: what has a dot or a port, or is localhost, is a host.
    host = where.pop(0) if where and (set(".:") & set(where[0]) or where[0] == "localhost") else ""
    return "/".join(part for part in (registry or host, namespace or "/".join(where), name) if part)
