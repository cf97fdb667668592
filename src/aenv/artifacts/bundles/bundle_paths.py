"""What a path and a link in a bundle may be: packing and reading hold them to the same rules."""

from __future__ import annotations

from collections.abc import Mapping

from ...base.errors import InvalidRequest

_MAX_PATH = 1024
_MAX_NAME_BYTES = 255  # what a file system takes
_MAX_LINKS = 40  # on the way to one file; the kernel's own limit
_MAX_STEPS = 1_000_000


def checked(name: str) -> str:
    """A path below the root, in its shortest form; "" is the root itself."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    path = "/".join(parts)
    try:
        longest = max((len(part.encode()) for part in parts), default=0)
    except UnicodeEncodeError:
        raise InvalidRequest(f"{path[:200]!r} in the bundle is not a name in UTF-8; rename it") from None
    if name.startswith("/") or ".." in parts or "\0" in name:
        raise InvalidRequest(f"{name[:200]!r} in the bundle leads out of it; paths begin at its root")
    if longest > _MAX_NAME_BYTES or len(path) > _MAX_PATH:
        raise InvalidRequest(f"{path[:200]!r}… in the bundle is too long; a path may have {_MAX_PATH} characters")
    return path


def refuse_leaving(links: Mapping[str, str]) -> None:
    """Refuse links (path to target) of which one leads out of the tree, if only by way of others."""
    walk = _Walk(links)
    for path, target in links.items():
        checked(path)
        if not target or "\0" in target or len(target) > _MAX_PATH or not walk.stays_inside(path):
            raise InvalidRequest(
                f"link {path!r} to {target[:200]!r} leads out of the bundle; let it point to something inside"
            )


class _Walk:
    """Follows paths as the kernel would. It gives up on tangles of links that only an attacker makes."""

    def __init__(self, links: Mapping[str, str]) -> None:
        self._links = links
        self._steps = 0

    def stays_inside(self, path: str) -> bool:
        at: list[str] = []
        ahead = path.split("/")[::-1]
        followed = 0
        while ahead and followed <= _MAX_LINKS:  # beyond it the kernel goes no further, either
            self._steps += 1
            if self._steps > _MAX_STEPS:
                raise InvalidRequest("the links in the bundle are a tangle that takes too long to follow")
            part = ahead.pop()
            if part == "..":
                if not at:
                    return False
                at.pop()
            elif part not in ("", "."):
                at.append(part)
                target = self._links.get("/".join(at))
                if target is not None:
                    if target.startswith("/"):
                        return False
                    followed += 1
                    at.pop()
                    ahead += target.split("/")[::-1]
        return True
