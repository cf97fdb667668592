"""A web app in the making: tools to write its files, run Python, and check its pages; versions with undo.

The files are in memory, and in no folder. Who makes the instance saves them with the functions `history` and
`contents`, and brings them back with `load_project`.
"""

from __future__ import annotations

import base64
import math
from collections.abc import AsyncIterator
from typing import Annotated, Any

import mini_program_html as html
import mini_program_python as python
from mini_program_chromium import PageCheck, program
from mini_program_files import Project, digest_of
from mini_program_paths import chosen, cleaned, folder

from aenv import Context, Depends, ToolError, register_function, register_reset, register_tool

HOME = "index.html"
_WIDTHS = (360, 768, 1280)
_STATIC = (
    "static: no Chromium in this instance, or no Playwright to drive it, so no script has run; 'aenv data pull "
    "browser' gives it the first, and a start with a package index in reach the second"
)
_CHROMIUM = "chromium"
_MAX_LISTENING = 5.0
_MAX_WIDTHS = 5


async def open_project(context: Context) -> AsyncIterator[Project]:
    """The project of this instance: empty until files are written or a saved one is loaded."""
    yield Project()


InProject = Annotated[Project, Depends(open_project)]


@register_tool(annotations={"readOnlyHint": True})
def read_file(project: InProject, path: str = "", file_path: str = "") -> str:
    """Read a file of the project.

    Args:
        path: The path from the top of the project, such as "css/style.css".
        file_path: The same as path.
    """
    name = chosen(path, file_path)
    try:
        return project.read(name).decode()
    except UnicodeDecodeError:
        raise ToolError(f"{name!r} is not text; execute_python_code can read its bytes") from None


@register_tool
def write_file(project: InProject, content: str, path: str = "", file_path: str = "") -> dict[str, Any]:
    """Write a file of the project; what it held is replaced.

    Args:
        content: The whole text of the file.
        path: The path from the top of the project, such as "index.html".
        file_path: The same as path.
    """
    name = chosen(path, file_path)
    data = content.encode(errors="replace")
    changed = project.change({name: data}, set(), f"write {name}")
    return {"path": name, "bytes": len(data), "changed": bool(changed)}


@register_tool(annotations={"readOnlyHint": True})
def list_files(project: InProject, directory: str = "/") -> dict[str, Any]:
    """The files of the project, with their sizes.

    Args:
        directory: Only those in this folder and below it.
    """
    return {"directory": directory, "files": project.listed(folder(directory))}


@register_tool
def execute_python_code(project: InProject, code: str, timeout: float = 30) -> dict[str, Any]:
    """Run Python in a folder that holds the project's files. Files that it writes or removes are the project's.

    Each call is a new process, without a network. Gives {"stdout", "stderr", "exit_code", "timed_out", "changed",
    "ignored"}.

    Args:
        code: A program.
        timeout: How many seconds it may take, at most 50.
    """
    if not (math.isfinite(timeout) and 0 < timeout <= python.MAX_SECONDS):
        raise ToolError(f"'timeout' is a number of seconds, above 0 and at most 50, not {timeout}")
    return python.run(project, code, timeout)


@register_tool(annotations={"readOnlyHint": True})
def validate_html(project: InProject, path: str = "", file_path: str = "", content: str = "") -> dict[str, Any]:
    """Parse a page as browsers do, and tell its errors, and what is likely wrong with it.

    Args:
        path: The page; index.html without one.
        file_path: The same as path.
        content: A text to check in place of the file's.
    """
    name = chosen(path, file_path, HOME)
    return html.validated(content or _text(project, name), name, project.all())


@register_tool(annotations={"readOnlyHint": True})
def check_responsive_design(
    project: InProject, context: Context, path: str = "", file_path: str = "", widths: list[int] | None = None
) -> dict[str, Any]:
    """Whether a page fits into narrow and wide windows: what is wider than the window, or too small to touch.

    Args:
        path: The page; index.html without one.
        file_path: The same as path.
        widths: Widths of windows in pixels; 360, 768 and 1280 without them.
    """
    name = chosen(path, file_path, HOME)
    sizes = widths or list(_WIDTHS)
    if len(sizes) > _MAX_WIDTHS or not all(200 <= width <= 4000 for width in sizes):
        raise ToolError(f"'widths' are at most {_MAX_WIDTHS} numbers from 200 to 4000, not {sizes}")
    said = html.responsive(_text(project, name), name, project.all())
    chromium = program(context.variables)
    if chromium is None:
        return {"responsive": not said["problems"], **said, "checked_by": _STATIC}
    seen = PageCheck(chromium, project.all(), name).widths(sizes)
    # What Chromium has measured counts more than what style sheets seem to say.
    problems = [one for one in said["problems"] if "viewport" in one]
    problems += [
        f"in a window of {one['width']}px the page is {one['page_width']}px wide: {', '.join(one['too_wide'])}"
        for one in seen
        if not one["fits"]
    ]
    return {"responsive": not problems, "problems": problems, "windows": seen, "checked_by": _CHROMIUM}


@register_tool(annotations={"readOnlyHint": True})
def log_browser_console(
    project: InProject, context: Context, path: str = "", file_path: str = "", seconds: float = 1
) -> dict[str, Any]:
    """Open a page in Chromium and give what its console shows: messages, errors of scripts, missing files.

    Args:
        path: The page; index.html without one.
        file_path: The same as path.
        seconds: How long to listen after the page has loaded, at most 5.
    """
    name = chosen(path, file_path, HOME)
    if not 0 <= seconds <= _MAX_LISTENING:
        raise ToolError(f"'seconds' is a number from 0 to {_MAX_LISTENING:g}, not {seconds}")
    text = _text(project, name)
    chromium = program(context.variables)
    if chromium is None:
        messages, by = html.broken(text, name, project.all()), _STATIC
    else:
        messages, by = PageCheck(chromium, project.all(), name).console(seconds), _CHROMIUM
    return {"errors": sum(one["level"] == "error" for one in messages), "messages": messages, "checked_by": by}


@register_function
def history(project: InProject) -> dict[str, Any]:
    """Versions, which of them is shown, and the sizes of what they hold by digest."""
    return project.history()


@register_function
def contents(project: InProject, digests: list[str]) -> dict[str, str]:
    """What versions hold, in base64, by the sha256 that `history` gives."""
    return project.contents(digests)


@register_function
def load_project(
    project: InProject, shown: int, versions: list[dict[str, Any]], contents: dict[str, str]
) -> dict[str, Any]:
    """Become a project that was saved: `shown` and `versions` of its history, and its contents."""
    project.load(shown, versions, contents)
    return project.history()


@register_function
def begin_change(project: InProject, summary: str = "", by: str = "agent") -> None:
    """Let all changes from now on be one version of this summary; without one, each is a version again."""
    project.begin(summary, by)


@register_function
def undo(project: InProject) -> dict[str, Any]:
    """Show the version before the one that is shown."""
    project.undo()
    return project.history()


@register_function
def redo(project: InProject) -> dict[str, Any]:
    """Show the newest version that was made from the one that is shown."""
    project.redo()
    return project.history()


@register_function
def show_version(project: InProject, number: int) -> dict[str, Any]:
    """Show any version of the history."""
    project.show(number)
    return project.history()


@register_function
def get_file(project: InProject, path: str) -> dict[str, str]:
    """A file in base64, and its digest."""
    content = project.read(cleaned(path))
    return {"content": base64.b64encode(content).decode(), "digest": digest_of(content)}


@register_function
def put_file(project: InProject, path: str, content: str, digest: str | None = None) -> dict[str, Any]:
    """Write a text as a person does. `digest` is what the file held when they began; "" for a file that is new."""
    name = cleaned(path)
    expected = None if digest is None else {name: digest}
    project.change({name: content.encode(errors="replace")}, set(), f"edit {name}", "you", expected, joins=True)
    return project.history()


@register_function
def remove_file(project: InProject, path: str) -> dict[str, Any]:
    """Remove a file as a person does."""
    name = cleaned(path)
    project.read(name)
    project.change({}, {name}, f"remove {name}", by="you")
    return project.history()


@register_reset
def start_over(project: InProject, seed: int | None = None) -> dict[str, Any]:
    """An empty project without versions. Nothing here depends on the seed."""
    fresh = Project().history()
    project.load(fresh["shown"], fresh["versions"], {})
    return {"files": []}


def _text(project: Project, path: str) -> str:
    return project.read(path).decode(errors="replace")
