"""Loading an environment's code: a file, or every Python file of a folder.

Files are executed under the names by which they import each other, so that nothing runs twice, and the folder
stays on `sys.path`, so that imports inside a tool keep working.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import site
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from ..author.registry import Registry, collecting
from ..errors import StartFailed

logger = logging.getLogger("aenv.runtime.loader")

_SKIPPED_FOLDERS = {"tests", "test", "node_modules", "site-packages", "venv", "build", "dist"}


def load(path: Path, *, lenient: bool = False) -> tuple[Registry, list[ModuleType]]:
    """The registry that the code below `path` fills, and the modules that were loaded.

    A file that fails to load fails the whole with its traceback, unless `lenient`: then it is logged and left out.
    """
    path = path.resolve()
    if not path.exists():
        raise StartFailed(f"no such file or folder: {str(path)!r}")
    root, files = (path.parent, [path]) if path.is_file() else _folder(path)
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    modules: list[ModuleType] = []
    with collecting(Registry()) as registry:
        for file in files:
            try:
                module = _execute(file, root)
            except (Exception, SystemExit) as error:  # boundary: author's code
                message = f"{file.relative_to(root)} failed to load:\n{_trace(error)}"
                if not lenient:
                    raise StartFailed(message) from error
                logger.warning("%s", message)
                continue
            modules.append(module)
    return registry, modules


def add_layer(path: Path) -> None:
    """Make the packages in a folder importable: before those of this interpreter, after the standard library.

    To be called before `load`, which puts the environment's own folder first. Nothing of ours is replaced:
    `aenv` is loaded already, and the packages that it needs are in no layer.
    """
    if not path.is_dir():
        raise StartFailed(f"no such layer: {str(path)!r}")
    before = list(sys.path)
    site.addsitedir(str(path.resolve()))  # at the end, with what its .pth files add
    added = [entry for entry in sys.path if entry not in before]
    place = next((index for index, entry in enumerate(before) if _holds_packages(entry)), len(before))
    sys.path[:] = [*before[:place], *added, *before[place:]]


def _holds_packages(entry: str) -> bool:
    return Path(entry).name in ("site-packages", "dist-packages")


def _folder(path: Path) -> tuple[Path, list[Path]]:
    root = path / "src" if (path / "src").is_dir() else path
    return root, sorted(_python_files(root))


def _python_files(root: Path) -> Iterator[Path]:
    """Files to execute: no tests, nothing hidden or private, no virtual environments."""
    for entry in root.iterdir():
        name = entry.name
        if name.startswith((".", "_")):
            continue
        if entry.is_dir():
            if name not in _SKIPPED_FOLDERS and not (entry / "pyvenv.cfg").exists():
                yield from _python_files(entry)
        elif entry.suffix == ".py" and not _is_test(entry.stem):
            yield entry


def _is_test(stem: str) -> bool:
    return stem.startswith("test_") or stem.endswith("_test") or stem in ("conftest", "setup")


def _execute(file: Path, root: Path) -> ModuleType:
    loaded = _already_loaded(file)
    if loaded:
        return loaded
    name = ".".join(file.relative_to(root).with_suffix("").parts)
    if _finds(name, file):
        return importlib.import_module(name)
    # A name that means another module, e.g. "types.py" beside the standard library's.
    name = f"aenv_environment.{name}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise StartFailed(f"{str(file)!r} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _finds(name: str, file: Path) -> bool:
    """Whether `import name` gets this very file."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None and Path(spec.origin) == file


def _already_loaded(file: Path) -> ModuleType | None:
    """The module of `file` if another file has imported it."""
    for module in list(sys.modules.values()):
        origin = getattr(module, "__file__", None)
        if origin and Path(origin) == file:
            return module
    return None


def _trace(error: BaseException) -> str:
    """The traceback, without our own frames at its head."""
    trace = error.__traceback__
    while trace and trace.tb_next and "importlib" not in trace.tb_frame.f_code.co_filename:
        trace = trace.tb_next
    while trace and trace.tb_next and "importlib" in trace.tb_frame.f_code.co_filename:
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace)).rstrip()
