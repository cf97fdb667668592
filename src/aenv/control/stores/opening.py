"""Which store a url means."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...base.errors import InvalidRequest

if TYPE_CHECKING:
    from .redis import RedisStore
    from .sqlite import SqliteStore

FORMS = "sqlite, sqlite:///path/to/file, redis://host:6379/0 or rediss://host:6379/0"


def open_store(url: str, home: Path) -> SqliteStore | RedisStore:
    """The store of `url`, to be used as an `async with`; without one, the file `aenv.db` in `home`."""
    file = sqlite_file(url, home)
    if file is None:
        return _redis(url)
    from .sqlite import SqliteStore

    return SqliteStore(file)


def sqlite_file(url: str, home: Path) -> Path | None:
    """The file of the store of `url`; None for a store in Redis."""
    scheme, separator, rest = url.partition("://")
    if scheme in ("redis", "rediss") and separator:
        return None
    if scheme in ("", "sqlite") and not separator:
        return home / "aenv.db"
    if scheme == "sqlite" and rest.startswith("/") and not rest.endswith("/"):
        return Path(rest)
    # Not the url itself: whatever it means, it may hold a password.
    raise InvalidRequest(f"the store's url has none of the forms {FORMS}")


def _redis(url: str) -> RedisStore:
    try:
        from .redis import RedisStore
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "redis":
            raise
        raise InvalidRequest("a store in redis needs: pip install 'redis>=5.2'") from None
    return RedisStore(url)
