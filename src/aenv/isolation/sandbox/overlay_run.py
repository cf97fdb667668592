"""Starting a program that sees folders laid over each other, where nobody else does.

    python -m aenv.isolation.sandbox.overlay_run PLAN -- COMMAND [ARGUMENT…]

PLAN is a file: {"overlays": {"target": ["upper", "lower"…], …}, "kept": {"target": "folder"}}. The overlays are
read-only; what is kept (`lasting_folders.py`) is shown as root's. All mounts are in a mount namespace of its own,
and go with its last process. It begins when it reads "+" from its standard input, so that it can be put into its
control groups before.
"""

from __future__ import annotations

import json
import os
import sys
from typing import NoReturn

from . import lasting_folders, system

_SAFE = system.MS_NOSUID | system.MS_NODEV


def main() -> NoReturn:
    """Mount, and become the command."""
    plan, dashes, *command = sys.argv[1:]
    assert dashes == "--"
    if os.read(0, 1) != b"+":
        os._exit(1)  # whoever has started it has given up
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    with open(plan, "rb") as file:
        told = json.load(file)
    try:
        system.unshare("mount")
        system.mount(None, "/", None, system.MS_REC | system.MS_PRIVATE)
        for target, layers in told["overlays"].items():
            _lay(target, layers)
        for target, folder in told["kept"].items():
            system.move_mount(lasting_folders.opened(folder, 0), target)
        os.execv(command[0], command)
    except OSError as error:
        print(f"cannot start {command[0]!r}: {error}", file=sys.stderr)
        os._exit(1)


def _lay(target: str, layers: list[str]) -> None:
    """Each at a place with a plain name first: a path may hold what means something else in the options."""
    os.chdir(target)
    # Beside each other on a file system that nobody else sees, and which the overlay comes to lie over.
    system.mount("layers", ".", "tmpfs", _SAFE, "mode=755,size=1m")
    os.chdir(target)
    for number, layer in enumerate(layers):
        os.mkdir(str(number))
        system.mount(layer, str(number), None, system.MS_BIND | system.MS_REC)
    places = ":".join(str(number) for number in range(len(layers)))
    system.mount("overlay", target, "overlay", _SAFE | system.MS_RDONLY, f"userxattr,lowerdir={places}")
    os.chdir("/")


if __name__ == "__main__":
    main()
