"""`aenv logout`: remove the address and the key that `aenv login` has saved."""

from __future__ import annotations

from .. import config_file, output
from ..help_pages import documented


@documented("logout", examples=("aenv logout",))
def command() -> None:
    """Remove the address and the key that 'aenv login' has saved.

    The key stays valid at its gateway until 'aenv token revoke'.
    """
    file = config_file.own_path()
    values = config_file.read(file)
    hub = dict(values.get("hub_config", {}))
    url = values.pop("system_url", None) or hub.get("hub_backend")
    key = hub.pop("api_key", None)
    hub.pop("hub_backend", None)
    if not (url or key):
        output.talk("not logged in")
        return
    if "hub_config" in values:
        values["hub_config"] = hub
    config_file.write(file, values)
    output.talk(f"logged out of {url}")
