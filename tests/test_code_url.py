"""Code that a config.json names by its URL: what is fetched, from where, and what is refused."""

from __future__ import annotations

import functools
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from aenv.base import settings
from aenv.base.errors import AEnvError, InvalidRequest, NetworkError
from aenv.client import code_url
from tests import s3_server


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The files of a folder over HTTP; the address."""
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def archive(folder: Path) -> Path:
    """A .tar.gz of a repository, as hosts of repositories make them: all in one folder."""
    source = folder / "repository-main" / "src"
    source.mkdir(parents=True)
    (source / "environment.py").write_text("code")
    target = folder / "code.tar.gz"
    subprocess.run(["tar", "-czf", target, "-C", folder, "repository-main"], check=True)
    return target


def repository(folder: Path) -> Path:
    """A git repository with the branches `main` and `other`."""
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.com", "-C", str(folder)]
    folder.mkdir()
    subprocess.run([*git, "init", "-q", "-b", "main"], check=True)
    for branch in ("main", "other"):
        (folder / "code.py").write_text(branch)
        subprocess.run([*git, "add", "-A"], check=True)
        subprocess.run([*git, "commit", "-q", "-m", branch], check=True)
        subprocess.run([*git, "checkout", "-q", "-b", "other"], check=branch == "main", capture_output=True)
    subprocess.run([*git, "checkout", "-q", "main"], check=True)
    return folder


def test_an_archive_gives_what_is_in_its_one_folder(tmp_path: Path) -> None:
    archive(tmp_path)
    with served(tmp_path) as url:
        folder = code_url.fetch(f"{url}/code.tar.gz", tmp_path / "fetched", {})
    assert [str(path.relative_to(folder)) for path in folder.rglob("*.py")] == ["src/environment.py"]


@pytest.mark.slow  # the S3 service takes seconds to start
@pytest.mark.filterwarnings("ignore:datetime.datetime.utcnow:DeprecationWarning")  # botocore's own
def test_an_archive_in_s3_is_fetched_with_the_users_own_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with s3_server.running_s3() as endpoint:
        s3_server.make_bucket(endpoint)
        s3_server.client(endpoint).upload_file(str(archive(tmp_path)), s3_server.BUCKET, "code.tar.gz")
        for name, value in {**s3_server.CREDENTIALS, "AWS_ENDPOINT_URL": endpoint}.items():
            monkeypatch.setenv(name, value)
        folder = code_url.fetch(f"s3://{s3_server.BUCKET}/code.tar.gz", tmp_path / "fetched", {})
        assert (folder / "src" / "environment.py").read_text() == "code"
        with pytest.raises(NetworkError, match=r"nothing\.tar\.gz"):
            code_url.fetch(f"s3://{s3_server.BUCKET}/nothing.tar.gz", tmp_path / "other", {})


def test_an_archive_that_is_none_or_not_there_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<html>")
    with served(tmp_path) as url:
        with pytest.raises(AEnvError):
            code_url.fetch(f"{url}/page.html", tmp_path / "fetched", {})
        with pytest.raises(NetworkError, match="404"):
            code_url.fetch(f"{url}/missing.tar.gz", tmp_path / "fetched", {})
    assert not (tmp_path / "fetched").exists()


@pytest.mark.parametrize(("suffix", "content"), [("", "main"), ("@main", "main"), ("@other", "other")])
def test_a_repository_is_cloned_at_its_branch_without_its_history(
    tmp_path: Path, suffix: str, content: str
) -> None:
    source = repository(tmp_path / "code.git")
    folder = code_url.fetch(f"git+file://{source}{suffix}", tmp_path / "fetched", settings.variables())
    assert [(path.name, path.read_text()) for path in folder.iterdir()] == [("code.py", content)]


@pytest.mark.parametrize(
    "url",
    ["http://example.com/x.tar.gz", "ftp://x/y", "/etc", "file:///etc", "ext::sh -c 'touch made'", "-u x", ""],
)
def test_what_nobody_should_fetch_from_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(InvalidRequest, match="cannot fetch codeUrl"):
        code_url.fetch(url, tmp_path / "fetched", {})


def test_a_url_cannot_make_git_run_a_program(tmp_path: Path) -> None:
    with pytest.raises(NetworkError):
        code_url.fetch(f"git+ext::touch {tmp_path}/made", tmp_path / "fetched", settings.variables())
    assert list(tmp_path.iterdir()) == []
