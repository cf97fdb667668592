"""Saved images: what `docker save` writes, old and new, and OCI layouts. Reading only.

Nothing in them is believed: paths stay in the folder, and what has a digest must have the right one. (The layers'
digests are checked where they are unpacked.)
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...base.errors import InvalidRequest
from ..sandbox.rootfs import Rootfs
from .merged_view import MergedView
from .references import architecture, canonical

_DIGEST = re.compile(r"sha256:([0-9a-f]{64})\Z")
_NAMES = ("io.containerd.image.name", "org.opencontainers.image.ref.name")
_MOST_LEVELS = 4  # of indexes that name indexes


@dataclass(frozen=True)
class SavedImage:
    digest: str
    """Of its configuration, which names everything else."""
    names: tuple[str, ...]
    config: dict[str, Any]
    layers: tuple[tuple[Path, str], ...]
    """The tars, the lowest first, with the digest of what is in them."""


def read_layout(folder: Path, name: str = "") -> SavedImage:
    """The image in this folder; of several, the one called `name`."""
    view = MergedView(Rootfs("layout", (folder,)))
    try:
        found = list(_read(view))
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"the image is damaged: {error!r} in its description") from None
    wanted = [image for image in found if name and canonical(name) in image.names]
    chosen = wanted or found
    if len({image.digest for image in chosen}) > 1:
        names = sorted(name for image in found for name in image.names)
        raise InvalidRequest(f"there are several images in it; choose one by its name: {', '.join(names)}")
    if not chosen:
        raise InvalidRequest(f"there is no image in it for this machine ({architecture()})")
    return chosen[0]


def _read(view: MergedView) -> Iterator[SavedImage]:
    if (text := view.read("manifest.json")) is not None:
        for saved in _parsed(text, "manifest.json"):
            names = _names(saved.get("RepoTags") or ())
            config = _file(view, saved["Config"])
            claimed = re.search(r"([0-9a-f]{64})(\.json)?\Z", saved["Config"])
            yield _image(view, config, names, saved["Layers"], claimed[1] if claimed else "")
    elif (text := view.read("index.json")) is not None:
        for names, manifest in _manifests(view, _parsed(text, "index.json"), 0):
            config = _blob(view, manifest["config"]["digest"])
            paths = [_blob_path(layer["digest"]) for layer in manifest["layers"]]
            yield _image(view, config, names, paths, manifest["config"]["digest"].partition(":")[2])
    else:
        raise InvalidRequest("it is not an image: it has neither manifest.json nor index.json; use 'docker save'")


def _manifests(view: MergedView, index: Any, level: int) -> Iterator[tuple[tuple[str, ...], Any]]:
    for entry in index["manifests"]:
        if entry.get("platform", {}).get("architecture", architecture()) != architecture():
            continue
        inner = _parsed(_blob(view, entry["digest"]), entry["digest"])
        spelled = entry.get("annotations") or {}
        names = _names([spelled[key] for key in _NAMES if key in spelled])
        if "manifests" in inner and level < _MOST_LEVELS:
            yield from ((names + below, found) for below, found in _manifests(view, inner, level + 1))
        elif "layers" in inner:
            yield names, inner


def _names(spelled: Iterable[str]) -> tuple[str, ...]:
    """Those that are names; "latest" alone is none, nor is "<none>:<none>"."""
    names = []
    for name in spelled:
        with contextlib.suppress(InvalidRequest):
            names += [canonical(name)] if ":" in name or "/" in name else []
    return tuple(names)


def _image(view: MergedView, config: bytes, names: tuple[str, ...], paths: list[str], claimed: str) -> SavedImage:
    found = hashlib.sha256(config).hexdigest()
    if claimed and found != claimed:
        raise InvalidRequest(f"the digest of the image's configuration is {found}, and should be {claimed}")
    parsed = _parsed(config, "the configuration")
    if (made_for := parsed.get("architecture", architecture())) != architecture():
        raise InvalidRequest(f"the image is for {made_for}, and this machine is {architecture()}")
    digests = parsed["rootfs"]["diff_ids"]
    if len(digests) != len(paths) or not all(_DIGEST.match(digest) for digest in digests):
        raise InvalidRequest("the image is damaged: its layers are not those that its configuration names")
    places = [_place(view, path) for path in paths]
    return SavedImage(found, names, parsed, tuple(zip(places, digests, strict=True)))


def _blob(view: MergedView, digest: str) -> bytes:
    content = _file(view, _blob_path(digest))
    found = f"sha256:{hashlib.sha256(content).hexdigest()}"
    if found != digest:
        raise InvalidRequest(f"the image is damaged: {digest} has the digest {found}")
    return content


def _blob_path(digest: str) -> str:
    if not (match := _DIGEST.match(digest)):
        raise InvalidRequest(f"the image names {digest!r}, which is not a sha256 digest")
    return f"blobs/sha256/{match[1]}"


def _file(view: MergedView, path: str) -> bytes:
    content = view.read(path)
    if content is None:
        raise InvalidRequest(f"the image is not complete: {path!r} is missing")
    return content


def _place(view: MergedView, path: str) -> Path:
    found = view.find(view.resolve(path))
    if found is None or not found.is_file():
        raise InvalidRequest(f"the image is not complete: {path!r} is missing")
    return found


def _parsed(text: bytes, what: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidRequest(f"the image is damaged: {what} is not JSON: {error}") from None
