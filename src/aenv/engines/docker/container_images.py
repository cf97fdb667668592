"""The images that the engine of containers has, and how it gets those that it lacks."""

from __future__ import annotations

import asyncio
import json

from ...base.errors import NotFound
from .docker_api import DockerApi, DockerRefused


class ContainerImages:
    def __init__(self, api: DockerApi) -> None:
        self._api = api
        self._pulls: dict[str, asyncio.Task[None]] = {}

    async def has(self, image: str) -> bool:
        """Asked for each instance: an image may be removed at any time, and the answer takes a millisecond."""
        try:
            await self._api.call("GET", f"/images/{image}/json")
        except DockerRefused:
            return False
        return True

    async def must_have(self, image: str) -> None:
        """NotFound, with what to do, when a base image is not here: no registry has it."""
        if not await self.has(image):
            raise NotFound(
                f"the base image {image!r} was not found in the Docker engine; make it with 'deploy/base-image', "
                "or name another with --base-image"
            )

    async def pulled(self, image: str) -> None:
        """Have the image here, from its registry if need be. NotFound when there is no such image."""
        if await self.has(image):
            return
        task = self._pulls.get(image)
        if task is None:
            task = self._pulls[image] = asyncio.create_task(self._pull(image))
            task.add_done_callback(lambda _: self._pulls.pop(image))
        await asyncio.shield(task)

    async def _pull(self, image: str) -> None:
        name, tag = _split(image)
        try:
            response = await self._api.response("POST", "/images/create", fromImage=name, tag=tag)
            last = ""
            async for piece in response:
                last = (last + piece.decode(errors="replace"))[-4096:]
        except DockerRefused as error:
            raise _missing(image, error.message) from None
        for line in last.splitlines():
            if '"error"' in line:
                raise _missing(image, _told(line))
        if not await self.has(image):
            raise _missing(image, "its registry sent nothing")


def _missing(image: str, why: str) -> NotFound:
    return NotFound(f"the image {image!r} was not found, neither here nor in its registry: {why}")


def _told(line: str) -> str:
    try:
        return str(json.loads(line)["error"])
    except (ValueError, KeyError, TypeError):
        return line[:500]


def _split(image: str) -> tuple[str, str]:
    """Name and tag, or digest: without either, Docker would pull every tag."""
    if "@" in image:
        name, _, digest = image.partition("@")
        return name, digest
    name, colon, tag = image.rpartition(":")
    return (name, tag) if colon and "/" not in tag else (image, "latest")
