"""The routes of bundles: upload in parts, download, and signed URLs for those who have no account."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

from starlette.responses import Response

from ...base import mcp, refs
from ...base.errors import Forbidden, InvalidRequest, NotFound
from ...base.models import DIGEST_PATTERN, AnnounceBundle, AnnouncedBundle, ReceivedPart
from ..serving import envelope
from ..serving.accounts import Role
from ..serving.routes import Route, RouteCall
from . import downloads
from .blobs import Blobs
from .environment_routes import any_ref, exact_ref
from .environments import Environments
from .signing import SignedUse, Signer
from .uploads import MAX_BUNDLE_BYTES, Uploads

_SIGNED_FOR = 3600.0  # seconds that a signed URL works
_GZIP = "application/gzip"
_SCENARIO = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")


class BundleRoutes:
    def __init__(
        self, environments: Environments, uploads: Uploads, blobs: Blobs, signer: Signer, data: Path
    ) -> None:
        self._environments = environments
        self._uploads = uploads
        self._blobs = blobs
        self._signer = signer
        self._data = data

    def routes(self) -> list[Route]:
        one, signed = "/env/{name}/{version}", "/signed/{token}"
        part, offset = "/bundles/{digest}", {"offset": "where in the bundle this part begins"}
        style = {"style": "read: a URL to download it; otherwise one to upload it with PUT"}
        data = {"scenario": "a file of names and images on the server", "instance": "one of its names"}
        announce, announced, image = AnnounceBundle, AnnouncedBundle, dict[str, Any]
        return [
            Route(
                "POST", "/bundles", self._announce, Role.USER, "how much of a bundle to send", announce, announced
            ),
            Route("PUT", part, self._receive, Role.USER, "send a part", reply=ReceivedPart, query=offset),
            Route("GET", f"{one}/bundle", self._download, Role.ANONYMOUS, "a version's bundle", media=_GZIP),
            Route("POST", f"{one}/sign", self._sign, Role.VIEWER, "a signed URL", reply=str, query=style),
            Route("GET", signed, self._signed_download, None, "download by signed URL", media=_GZIP),
            Route("PUT", signed, self._signed_upload, None, "upload by signed URL", reply=str),
            Route("GET", "/data", self._image, Role.VIEWER, "an image of a scenario", reply=image, query=data),
        ]

    async def _announce(self, call: RouteCall) -> Response:
        body = await call.read(AnnounceBundle)
        known = await self._uploads.announce(body.digest, body.size_bytes, call.caller)
        return envelope.success(known.model_dump())

    async def _receive(self, call: RouteCall) -> Response:
        digest = call.path["digest"]
        if not re.fullmatch(DIGEST_PATTERN, digest):
            raise InvalidRequest(
                "field 'digest': must be the sha256 of the bundle, in 64 lower-case hexadecimal digits"
            )
        offset = call.number("offset", 0, most=MAX_BUNDLE_BYTES)
        chunks = call.stream(MAX_BUNDLE_BYTES - offset)
        received = await self._uploads.receive(digest, offset, chunks, call.caller)
        return envelope.success(received.model_dump())

    async def _download(self, call: RouteCall) -> Response:
        environment = await self._environments.find(any_ref(call), call.caller)
        return await downloads.reply(call, self._blobs, _digest(environment.digest, str(environment.ref)))

    async def _sign(self, call: RouteCall) -> Response:
        if call.query.get("style") == "read":
            environment = await self._environments.find(any_ref(call), call.caller)
            digest = _digest(environment.digest, str(environment.ref))
            url = await self._blobs.url(digest, _SIGNED_FOR)
            return envelope.success(url or await self._signed_url(call, SignedUse("GET", digest=digest)))
        ref = exact_ref(call)
        await self._environments.check_push(ref, call.caller)
        use = SignedUse("PUT", ref=str(ref), user=call.caller.user)
        return envelope.success(await self._signed_url(call, use))

    async def _signed_url(self, call: RouteCall, use: SignedUse) -> str:
        host = call.request.headers.get("host", "localhost")
        return f"{call.request.url.scheme}://{host}/signed/{await self._signer.sign(use, _SIGNED_FOR)}"

    async def _signed_download(self, call: RouteCall) -> Response:
        return await downloads.reply(call, self._blobs, (await self._signed(call, "GET")).digest)

    async def _signed_upload(self, call: RouteCall) -> Response:
        use = await self._signed(call, "PUT")
        chunks = call.stream(MAX_BUNDLE_BYTES)
        return envelope.success(await self._uploads.receive_for(refs.parse(use.ref), use.user, chunks))

    async def _signed(self, call: RouteCall, method: str) -> SignedUse:
        use = await self._signer.check(call.path["token"])
        if use.method != method:
            raise Forbidden(f"this signed URL is for {use.method}")
        return use

    async def _image(self, call: RouteCall) -> Response:
        """The image of an instance of a scenario: `<home>/data/<scenario>.json` says which."""
        scenario, instance = call.query.get("scenario", ""), call.query.get("instance", "")
        if not _SCENARIO.match(scenario) or not instance:
            wrong = "instance" if _SCENARIO.match(scenario) else "scenario"
            raise InvalidRequest(f"field {wrong!r}: is required, as in ?scenario=swebench&instance=x")
        try:
            images = mcp.loads(await asyncio.to_thread((self._data / f"{scenario}.json").read_bytes))
        except FileNotFoundError:
            images = {}
        image = images.get(instance) if isinstance(images, dict) else None
        return envelope.success({"image": image, "instance": instance} if image else None)


def _digest(digest: str | None, ref: str) -> str:
    if digest is None:
        raise NotFound(f"environment {ref!r} has no bundle; push it with 'aenv push'")
    return digest
