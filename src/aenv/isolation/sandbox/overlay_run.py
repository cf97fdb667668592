"""Starting a program that alone sees folders laid over each other.

    python -m aenv.isolation.sandbox.overlay_run PLAN -- COMMAND [ARGUMENT…]

PLAN is a file that holds an `OverlayPlan`. All mounts are in a mount namespace of its own, and go with its last
process. It begins when it reads "+" from its standard input, so that it can be put into its control groups before.
"""

# No postponed annotations here: `decode` reads the types of the fields.

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from . import lasting_folders, system
from .typed_json import Broken, decode

_SAFE = system.MS_NOSUID | system.MS_NODEV


@dataclass(frozen=True)
class OverlayPlan:
    overlays: Mapping[str, tuple[str, ...]]
    """By the folder that shows them: the folders to lay over each other, the uppermost first. Read-only."""
    kept: Mapping[str, str]
    """By the folder that shows it: a folder that outlives the command (`lasting_folders.py`), shown as root's."""


def main() -> NoReturn:
    plan, dashes, *command = sys.argv[1:]
    assert dashes == "--"
    if os.read(0, 1) != b"+":
        os._exit(1)  # the process that has started it has given up
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    try:
        with open(plan, "rb") as file:
            told = decode(file.read(), OverlayPlan, most_bytes=None)
        system.unshare("mount")
        system.mount(None, "/", None, system.MS_REC | system.MS_PRIVATE)
        for target, layers in told.overlays.items():
            _lay(target, layers)
        for target, folder in told.kept.items():
            system.move_mount(lasting_folders.opened(folder, 0), target)
        os.execv(command[0], command)
    except (OSError, Broken) as error:
        print(f"cannot start {command[0]!r}: {error}", file=sys.stderr)
        os._exit(1)


def _lay(target: str, layers: tuple[str, ...]) -> None:
    """Each at a place with a plain name first: a path may hold what means something else in the options."""
    os.chdir(target)
    # Beside each other on a file system that no other process sees, and which the overlay comes to lie over.
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
