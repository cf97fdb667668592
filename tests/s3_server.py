"""A real S3 service in a process of its own: moto's server, on a free port, with one empty bucket."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from collections.abc import Iterator

BUCKET = "bundles"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}


@contextlib.contextmanager
def running_s3() -> Iterator[str]:
    """The address of the service, as `?endpoint=` takes it; it ends with the block."""
    command = [sys.executable, "-u", "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        try:
            yield next(
                found[1] for line in process.stderr if (found := re.search(r"Running on (http://\S+)", line))
            )
        finally:
            process.kill()


def make_bucket(endpoint: str) -> None:
    client(endpoint).create_bucket(Bucket=BUCKET)


def client(endpoint: str):  # type: ignore[no-untyped-def]
    import boto3

    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
