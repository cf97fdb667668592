"""Loading an environment's code: a file, or every Python file of a folder.

Files are executed under the names by which they import each other, so that nothing runs twice, and the folder
stays on `sys.path`, so that imports inside a tool keep working.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import site
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from ...base.errors import StartFailed, ToolError
from ..author.registry import Registry, collecting

logger = logging.getLogger("aenv.inside.runtime.loader")

_SKIPPED_FOLDERS = {"tests", "test", "node_modules", "site-packages", "venv", "build", "dist"}


LoadedProject = tuple[Registry, list[ModuleType]]


def load(path: Path, *, lenient: bool = False) -> LoadedProject:
    """The registry that the code below `path` fills, and the modules that were loaded.

    A file that fails to load fails the whole with its traceback, unless `lenient`: then it is logged and left out.
    """
    # Text, not Path objects: this is on the way of every instance that is forked, and they cost a millisecond.
    name = os.path.realpath(path)
    if not os.path.exists(name):
        raise StartFailed(f"no such file or folder: {name!r}")
    root, files = (os.path.dirname(name), [name]) if os.path.isfile(name) else _folder(name)
    if root not in sys.path:
        sys.path.insert(0, root)
    modules: list[ModuleType] = []
    before = next(reversed(sys.modules))
    with collecting(Registry()) as registry:
        for file in files:
            try:
                module = _execute(file, root, before)
            except (Exception, SystemExit) as error:  # boundary: author's code
                # An author's own words for a wrong setting say all; anything else is a bug to be found.
                why = error.message if isinstance(error, ToolError) else _told(error, file, root)
                message = f"{os.path.relpath(file, root)} failed to load: {why}"
                if not lenient:
                    raise StartFailed(message) from error
                logger.warning("%s", message)
                continue
            modules.append(module)
    return registry, modules


def add_requirements(path: Path) -> None:
    """Make the packages in a folder importable: before those of this interpreter, after the standard library.

    To be called before `load`, which puts the environment's own folder first. Nothing of ours is replaced:
    `aenv` is loaded already, and the packages that it needs are never among them.
    """
    if not path.is_dir():
        raise StartFailed(f"no such folder of requirements: {str(path)!r}")
    before = list(sys.path)
    site.addsitedir(str(path.resolve()))  # at the end, with what its .pth files add
    added = [entry for entry in sys.path if entry not in before]
    packages = ("site-packages", "dist-packages")
    place = next((index for index, entry in enumerate(before) if Path(entry).name in packages), len(before))
    sys.path[:] = [*before[:place], *added, *before[place:]]


def _folder(path: str) -> tuple[str, list[str]]:
    source = os.path.join(path, "src")
    root = source if os.path.isdir(source) else path
    return root, sorted(python_files(root))


def python_files(root: str) -> Iterator[str]:
    """Files to execute: no tests, nothing hidden or private, no virtual environments."""
    with os.scandir(root) as entries:
        for entry in entries:
            name = entry.name
            if name.startswith((".", "_")):
                continue
            if entry.is_dir():
                if name not in _SKIPPED_FOLDERS and not os.path.exists(os.path.join(entry.path, "pyvenv.cfg")):
                    yield from python_files(entry.path)
            elif name.endswith(".py") and not _is_test(name[:-3]):
                yield entry.path


def _is_test(stem: str) -> bool:
    return stem.startswith("test_") or stem.endswith("_test") or stem in ("conftest", "setup")


def _execute(file: str, root: str, before: str) -> ModuleType:
    loaded = _already_loaded(file, before)
    if loaded:
        return loaded
    name = file[len(root) + 1 : -3].replace("/", ".")
    if _finds(name, file):
        return importlib.import_module(name)
    # A name that means another module, e.g. "types.py" beside the standard library's.
    name = f"aenv_environment.{name}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise StartFailed(f"{file!r} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _finds(name: str, file: str) -> bool:
    """Whether `import name` gets this very file."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin == file


def _already_loaded(file: str, before: str) -> ModuleType | None:
    """The module of `file` if another file has imported it, since the module `before` was loaded."""
    # Newest first, and no further: to look at a module of a forked process is to copy its page.
    for name in reversed(sys.modules):
        if name == before:
            break
        module = sys.modules[name]
        if getattr(module, "__file__", None) == file:
            return module
    return None


def _told(error: BaseException, file: str, root: str) -> str:
    """A line with the place in the author's code, for one who reads only that; the traceback follows."""
    places = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    why = str(error).strip().partition("\n")[0]
    if isinstance(error, SyntaxError):
        places.append((error.filename or "", error.lineno))
        why = error.msg
    own = [(name, line) for name, line in places if name.startswith(f"{root}/")]
    where = ""
    if own:
        name, line = own[-1]
        where = f"{'' if name == file else f'{os.path.relpath(name, root)}, '}line {line}: "
    return f"{where}{type(error).__name__}{f': {why}' if why else ''}\n{_trace(error)}"


def _trace(error: BaseException) -> str:
    """The traceback, without our own frames at its head."""
    trace = error.__traceback__
    while trace and trace.tb_next and "importlib" not in trace.tb_frame.f_code.co_filename:
        trace = trace.tb_next
    while trace and trace.tb_next and "importlib" in trace.tb_frame.f_code.co_filename:
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace)).rstrip()
