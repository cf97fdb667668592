"""The code that a config.json names by `codeUrl`: a git repository, an archive at an https URL, or one in S3.

Fetched where `aenv push` runs, with that person's rights. Servers never dial such a URL.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from ..artifacts import bundles
from ..base.errors import InvalidRequest, NetworkError

_MAX_BYTES = 4 << 30
_TIMEOUT = 60.0
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def fetch(url: str, folder: Path, variables: Mapping[str, str]) -> Path:
    """Put the code into the new `folder`; the folder in it that holds the code. `variables` are git's."""
    parts = urlsplit(url)
    if _is_git(url):
        _clone(url, folder, variables)
        return folder
    archive = folder.with_suffix(".tar.gz")
    if parts.scheme == "s3":
        _from_s3(parts.netloc, parts.path.lstrip("/"), archive)
    elif parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK):
        _download(url, archive)
    else:
        raise InvalidRequest(f"cannot fetch codeUrl {url!r}; it may begin with 'https://', 's3://' or 'git+'")
    bundles.unpack(archive, folder)
    inside = list(folder.iterdir())
    # Archives of a repository hold one folder, named after it.
    return inside[0] if len(inside) == 1 and inside[0].is_dir() else folder


def _is_git(url: str) -> bool:
    path = urlsplit(url).path.partition("@")[0]
    return url.startswith(("git+", "git@", "git://", "ssh://")) or path.endswith(".git")


def _clone(url: str, folder: Path, variables: Mapping[str, str]) -> None:
    """`git+https://host/repository.git@branch`, also without the first four letters or the branch."""
    source, at, branch = url.removeprefix("git+").rpartition("@")
    if not at or "/" not in source.removeprefix("ssh://").removeprefix("https://"):
        source, branch = url.removeprefix("git+"), ""  # the @ of git@host, or none
    command = ["git", "clone", "--quiet", "--depth", "1", *(["--branch", branch] if branch else [])]
    quiet = {**variables, "GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh"}
    try:
        done = subprocess.run([*command, "--", source, folder], env=quiet, capture_output=True, text=True)
    except FileNotFoundError:
        raise InvalidRequest(f"codeUrl {url!r} needs git, which is not installed") from None
    if done.returncode:
        raise NetworkError(f"cannot fetch codeUrl {url!r}: {done.stderr.strip()[-500:]}")
    shutil.rmtree(folder / ".git")


def _download(url: str, archive: Path) -> None:
    import urllib.request  # follows redirects, which our own client has no need for

    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT) as response, archive.open("wb") as file:
            while chunk := response.read(1 << 20):
                file.write(chunk)
                if file.tell() > _MAX_BYTES:
                    raise InvalidRequest(f"what codeUrl {url!r} gives is larger than {_MAX_BYTES >> 30} GiB")
    except OSError as error:
        raise NetworkError(f"cannot fetch codeUrl {url!r}: {error}") from error


def _from_s3(bucket: str, key: str, archive: Path) -> None:
    try:
        import boto3
    except ImportError:
        raise InvalidRequest("codeUrl 's3://…' needs boto3: pip install 'boto3>=1.35'") from None
    try:
        boto3.client("s3").download_file(bucket, key, os.fspath(archive))
    except Exception as error:  # boundary: boto3, whose errors have no common base
        raise NetworkError(f"cannot fetch codeUrl 's3://{bucket}/{key}': {error}") from error
