"""Dockerfiles done without a container daemon (docs/adr/0026).

Not here: the syntax (`dockerfile.py`), which files are copied (`copying.py`), making layers (`build_steps.py`).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path

from ..sandbox.rootfs import Rootfs
from .build_steps import BuildState, BuildSteps
from .copying import Item, Owner, chosen, items
from .dockerfile import BuildStage, Dockerfile, Instruction, parse
from .host_layers import FOLDER, INSTALL
from .images import OnLine
from .merged_view import MergedView
from .references import architecture

_WITHOUT_EFFECT = ("EXPOSE", "HEALTHCHECK", "ONBUILD", "STOPSIGNAL", "VOLUME")
_ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst")

FindBase = Callable[[str, OnLine], Awaitable[BuildState]]
"""What FROM means; told what it does meanwhile. NotFound for an image that is not known."""


async def build(
    text: str,
    context: Path,
    *,
    name: str,
    steps: BuildSteps,
    find_base: FindBase,
    on_line: OnLine | None = None,
    layered: bool = False,
) -> Rootfs:
    """The root that a Dockerfile's last stage describes. Errors name the line that failed.

    `layered`: instances in it get what the folder's requirements.txt asks for, installed once.
    """
    build = _Build(parse(text), context, steps, find_base, on_line or (lambda line: None), layered)
    state = await build.final()
    notes = list(dict.fromkeys((*state.root.notes, *state.notes)))
    if state.user.partition(":")[0] not in ("", "root", "0"):
        notes.append(f"USER {state.user} is not kept: in an instance everything has the same few rights")
    if state.command and "aenv.main" not in " ".join(state.command):
        notes.append(f"{' '.join(state.command)!r} is not started: an instance serves its environment's tools")
    folder = "" if state.folder == "/" else state.folder
    return replace(state.root, name=name, variables=state.variables, folder=folder, notes=tuple(notes))


class _Build:
    def __init__(
        self,
        file: Dockerfile,
        context: Path,
        steps: BuildSteps,
        find_base: FindBase,
        on_line: OnLine,
        layered: bool,
    ) -> None:
        self._layered = layered
        self._file, self._steps, self._find_base, self._on_line = file, steps, find_base, on_line
        self._context = MergedView(Rootfs("context", (context,)))
        self._is_ignored = _ignored(self._context)
        machine = architecture()
        self._global = {"TARGETOS": "linux", "TARGETARCH": machine, "TARGETPLATFORM": f"linux/{machine}"}
        self._done: dict[int, BuildState] = {}

    async def final(self) -> BuildState:
        for instruction in self._file.arguments:
            for name, value in instruction.pairs(self._global):
                self._global.setdefault(name, value or "")
        return await self._stage(len(self._file.stages) - 1)

    async def _stage(self, number: int) -> BuildState:
        """The stage when it is done; stages that no other needs are never begun."""
        if number not in self._done:
            stage = self._file.stages[number]
            state = await self._begin(stage, number)
            for instruction in stage.instructions:
                self._on_line(f"{instruction.name} {instruction.text}"[:200])
                await self._do(instruction, state, number)
            self._done[number] = state
        return self._done[number]

    async def _begin(self, stage: BuildStage, number: int) -> BuildState:
        reference = stage.origin.value(self._global, stage.base)
        notes = [f"--{flag} of FROM {reference} is ignored" for flag, _ in stage.origin.flags]
        if (below := self._named(reference, number)) is not None:
            return self._copied(await self._stage(below), notes)
        if not reference:
            raise stage.origin.error(f"FROM {stage.base} names nothing; give the ARG a default")
        self._on_line(f"FROM {reference}")  # before the longest step: the first time a base is laid out or fetched
        return self._copied(await self._find_base(reference, self._on_line), notes)

    def _copied(self, below: BuildState, notes: list[str]) -> BuildState:
        return replace(below, variables=dict(below.variables), arguments={}, notes=[*below.notes, *notes])

    def _named(self, name: str, before: int) -> int | None:
        stages = self._file.stages[:before]
        found = [number for number, stage in enumerate(stages) if stage.name and stage.name == name.lower()]
        return found[-1] if found else None

    async def _do(self, instruction: Instruction, state: BuildState, number: int) -> None:
        match instruction.name:
            case "RUN" if instruction.text == INSTALL and self._requirements_are_given(state):
                state.notes.append(f"RUN {INSTALL} is left out: instances get these packages as requirements")
            case "RUN":
                await self._steps.run(state, instruction, _command(instruction, state), self._on_line)
            case "COPY" | "ADD":
                await self._copy(instruction, state, number)
            case "WORKDIR":
                state.folder = posixpath.normpath(posixpath.join(state.folder, instruction.value(state.known)))
                if not MergedView(state.root).is_folder(state.folder):
                    await self._steps.put(state, [Item(state.folder)], Owner())
            case "ENV":
                known = state.known  # of before: the values of one ENV do not see each other
                state.variables.update({name: value or "" for name, value in instruction.pairs(known)})
            case "ARG":
                for name, value in instruction.pairs(state.known):
                    state.arguments[name] = self._global.get(name, value or "") if value is None else value
            case "USER":
                state.user = instruction.value(state.known)
            case "SHELL":
                if not instruction.listed:
                    raise instruction.error('SHELL must be a list; write SHELL ["/bin/bash", "-c"]')
                state.shell = instruction.listed
            case "CMD" | "ENTRYPOINT":
                state.command = instruction.listed or (*state.shell, instruction.text)
            case name if name in _WITHOUT_EFFECT:
                state.notes.append(f"{name} has no effect in an instance")

    def _requirements_are_given(self, state: BuildState) -> bool:
        """Whether the stage stands on the host root, and has the project's own requirements.txt."""
        if not self._layered:
            return False
        view, name = MergedView(state.root), "requirements.txt"
        own = self._context.read(f"/{name}")
        return view.is_folder(FOLDER) and own is not None and view.read(posixpath.join(state.folder, name)) == own

    async def _copy(self, origin: Instruction, state: BuildState, number: int) -> None:
        flags = dict(origin.flags)
        if unknown := sorted(set(flags) - {"from", "chown", "chmod", "link"}):
            raise origin.error(f"{origin.name} --{unknown[0]} is not supported; leave it out")
        words = origin.words(state.known)
        if len(words) < 2:
            raise origin.error(f"{origin.name} needs a source and a target")
        *sources, target = words
        view, is_ignored, default = self._context, self._is_ignored, Owner(0, 0)
        if "from" in flags:
            view, is_ignored, default = await self._other(origin.value(state.known, flags["from"]), number)
        owner = replace(default, **_owner(origin, flags, state))
        into = MergedView(state.root).resolve(posixpath.join(state.folder, target))
        texts = {f"<<{heredoc.name}": heredoc for heredoc in origin.heredocs}
        if (
            target.endswith(("/", "/."))
            or target == "."
            or len(sources) > 1
            or MergedView(state.root).is_folder(into)
        ):
            into = f"{into.rstrip('/')}/"
        wanted: list[Item] = []
        for source in sources:
            if heredoc := texts.get(re.sub(r"<<-?", "<<", source)):
                text = origin.expanded(heredoc, state.known).encode()
                wanted.append(Item(f"{into}{heredoc.name}" if into.endswith("/") else into, text=text))
            elif origin.name == "ADD" and re.match(r"\w+://|git@", source):
                raise origin.error(f"cannot ADD from the network; write RUN curl -fsSL -o {into} {source}")
            elif not (paths := chosen(view, source, is_ignored)):
                if len(sources) > 1 and any(char in source for char in "*?["):
                    continue  # as docker does: `COPY requirements.txt .aenv/*.whl ./`
                raise origin.error(f"{origin.name} finds no {source!r}; paths are those of the project's folder")
            else:
                archives = [path for path in paths if origin.name == "ADD" and _is_archive(view, path)]
                for path in archives:
                    if "chown" in flags or "chmod" in flags:
                        raise origin.error("ADD unpacks archives as they are; write RUN chown or chmod after it")
                    await self._add(state, view, path, into)
                wanted += items(view, [path for path in paths if path not in archives], into, is_ignored)
        if wanted:
            await self._steps.put(state, wanted, owner)

    async def _add(self, state: BuildState, view: MergedView, path: str, into: str) -> None:
        place = view.find(path)
        assert place is not None
        with place.open("rb") as archive:
            await self._steps.put_archive(state, archive, repr(place.name), into.rstrip("/") or "/")

    async def _other(self, name: str, number: int) -> tuple[MergedView, Callable[[str], bool], Owner]:
        """Where COPY --from copies from; its files keep their owners."""
        stage = self._named(name, number)
        if stage is None and name.isdecimal() and int(name) < number:
            stage = int(name)
        root = (
            (await self._stage(stage)).root
            if stage is not None
            else (await self._find_base(name, self._on_line)).root
        )
        view = MergedView(root)
        return view, view.is_closed, Owner()


def _command(origin: Instruction, state: BuildState) -> tuple[str, ...]:
    for flag, value in origin.flags:
        if flag == "mount" and "type=cache" in value.split(","):
            state.notes.append("RUN --mount=type=cache is ignored: every step is kept whole")
        elif flag != "network" or value not in ("default", "none"):
            raise origin.error(f"RUN --{flag}={value} is not supported; COPY what the command needs before it")
    if origin.listed:
        return origin.listed
    if not origin.heredocs:
        return (*state.shell, origin.text)
    first = origin.heredocs[0]
    if re.fullmatch(r"<<-?(['\"]?)\w+\1", origin.text):
        if first.text.startswith("#!"):
            program = first.text.partition("\n")[0].removeprefix("#!").strip()
            raise origin.error(
                f"a script with its own program is not supported; write RUN {program} <<{first.name}"
            )
        return (*state.shell, first.text)
    bodies = "".join(f"{heredoc.text}{heredoc.name}\n" for heredoc in origin.heredocs)
    return (*state.shell, f"{origin.text}\n{bodies}")


def _owner(origin: Instruction, flags: Mapping[str, str], state: BuildState) -> dict[str, int]:
    """What --chown and --chmod say."""
    found: dict[str, int] = {}
    if "chmod" in flags:
        if not re.fullmatch("[0-7]{3,4}", flags["chmod"]):
            raise origin.error(f"--chmod={flags['chmod']} is not supported; write it like --chmod=755")
        found["mode"] = int(flags["chmod"], 8)
    if "chown" in flags:
        user, _, group = origin.value(state.known, flags["chown"]).partition(":")
        found["user"] = _id(origin, state.root, "/etc/passwd", user)
        if group or user.isdecimal():
            found["group"] = _id(origin, state.root, "/etc/group", group or user)
        else:
            found["group"] = _id(origin, state.root, "/etc/passwd", user, column=3)
    return found


def _id(origin: Instruction, root: Rootfs, path: str, name: str, column: int = 2) -> int:
    if name.isdecimal():
        return int(name)
    for line in (MergedView(root).read(path) or b"").decode(errors="replace").splitlines():
        if (columns := line.split(":"))[0] == name and len(columns) > column and columns[column].isdecimal():
            return int(columns[column])
    raise origin.error(f"--chown: there is no {name!r} in {path}; make it with RUN useradd, or write its number")


def _is_archive(view: MergedView, path: str) -> bool:
    place = view.find(path)
    return path.lower().endswith(_ARCHIVES) and place is not None and place.is_file()


def _ignored(context: MergedView) -> Callable[[str], bool]:
    """What .dockerignore leaves out."""
    text = context.read(".dockerignore")
    if text is None:
        return lambda path: False
    from pathspec import GitIgnoreSpec  # 40 ms, and most folders have no such file

    lines = []
    for line in text.decode(errors="replace").splitlines():
        kept, pattern = line.strip().startswith("!"), line.strip().lstrip("!").strip().strip("/")
        if pattern and not line.startswith("#") and pattern != ".":
            lines.append(f"{'!' * kept}/{pattern.removeprefix('./')}")  # here, patterns begin at the top
    spec = GitIgnoreSpec.from_lines(lines)
    return lambda path: spec.match_file(path.lstrip("/"))
