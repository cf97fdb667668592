"""The state of one instance: its record, its base tree, where the agent works, and what it has handed in.

Each part is made at the first call that needs it. Not here: tools and rewards (`swebench_env.py`).
"""

from __future__ import annotations

import asyncio
import json
import secrets
import shutil
from dataclasses import replace
from pathlib import Path, PurePosixPath

import _swebench_confine as confine
import swebench_bases as bases
import swebench_pythons as pythons
import swebench_sites as sites
import swebench_workplace as workplace
from swebench_grading import Grade, Grader
from swebench_prepare import noted
from swebench_records import BadRecord, Record
from swebench_runs import Place
from swebench_sources import records

from aenv import Context, NotJudged, Sidecar, ToolError

BASES = ("docker", "git", "sdist")
_CONDA = "/opt/miniconda3/envs/testbed"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Bench:
    """One instance, as its tools and rewards share it."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._record: Record | None = None
        self._places: dict[tuple[str, ...], Place] = {}
        self._graders: dict[Record, Grader] = {}
        self._image = ""
        self._placing = asyncio.Lock()
        self._judging = asyncio.Lock()
        self._working = asyncio.Lock()
        self._is_prepared = False
        self._digests: dict[str, tuple[str, bool]] = {}
        self._variables: dict[str, str] = {}
        self.submitted: str | None = None

    def variable(self, name: str, default: str = "") -> str:
        return self._context.variables.get(name) or default

    @property
    def is_validation(self) -> bool:
        return self.variable("AENV_VALIDATION") == "1"

    @property
    def data(self) -> Path:
        """The folder of data. NotJudged says how to get one."""
        place = self.variable("SWEBENCH_DATA_DIR")
        if not place or not Path(place).exists():
            raise _not_ready(
                "no data for swebench: run 'aenv data pull swebench --from URL|DIR' (without --from it says what "
                "to fetch), or set SWEBENCH_DATA_DIR to a folder that has it"
            )
        return Path(place)

    @property
    def places(self) -> list[Path]:
        """Where packages, releases and interpreters are looked for: first where `aenv data prepare` puts them."""
        prepared = self.variable("SWEBENCH_PREPARED_DATA_DIR")
        return [*([Path(prepared)] if prepared else []), self.data]

    def base_of(self, record: Record) -> str:
        """Where the base tree comes from. Left out: what it was prepared with, or whatever the data has."""
        asked = self.variable("SWEBENCH_BASE")
        if asked and asked not in BASES:
            raise ToolError(f"SWEBENCH_BASE is {asked!r}; use one of {', '.join(BASES)}")
        if asked:
            return asked
        if prepared := self._prepared(record):
            return str(noted(prepared)["base"])
        if any(folder.is_dir() for folder in self._mirrors()):
            return "git"
        return "sdist" if any((place / "sdists").is_dir() for place in self.places) else "docker"

    def _prepared(self, record: Record) -> Path | None:
        """The folder that `aenv data prepare` has made for a record."""
        return next((venv for place in self.places if noted(venv := place / "venvs" / record.id)), None)

    def _mirrors(self) -> list[Path]:
        named = self.variable("SWEBENCH_GIT_DIR")
        # As in `swebench_prepare.py`: what the named folder lacks was cloned to the other.
        return [*([Path(named)] if named else []), *(place / "git" for place in self.places)]

    def all(self) -> list[Record]:
        return self._read("")

    def find(self, id: str) -> Record:
        """The record of that id. ToolError when the data has none."""
        if found := self._read(id):
            return found[0]
        near = ", ".join(record.id for record in self.all()[:5])
        raise ToolError(f"no instance {id!r} in {str(self.data)!r}, which has {near or 'no records'}")

    def _read(self, id: str) -> list[Record]:
        try:
            return [*records(self.data, id)]
        except BadRecord as error:
            raise ToolError(str(error)) from None
        except OSError as error:
            raise ToolError(f"the data cannot be read: {error}") from None

    def record(self) -> Record:
        """The record of this instance: the one that SWEBENCH_INSTANCE_ID names, or the only one there is."""
        if self._record is None:
            if id := self.variable("SWEBENCH_INSTANCE_ID"):
                self._record = self.find(id)
            else:
                found = self.all()
                if len(found) != 1:
                    some = ", ".join(record.id for record in found[:3])
                    raise ToolError(f"set SWEBENCH_INSTANCE_ID: the data has {len(found)} instances ({some} …)")
                self._record = found[0]
        return self._record

    async def place(self, record: Record) -> Place:
        """Where a record is judged; its base tree and its packages are made ready first."""
        # A trainer may bring a record of its own, of the same id and another base.
        key = (record.id, record.repo, record.base_commit, record.sdist, record.created_at, record.environment)
        async with self._placing:
            if key not in self._places:
                # A folder of its own for each attempt: one that was given up may still be at work in a thread.
                work = self._context.workspace / ".swebench" / f"{record.id}-{secrets.token_hex(4)}"
                try:
                    if self.base_of(record) == "docker":
                        self._places[key] = await self._from_image(record, work)
                    else:
                        self._places[key] = await asyncio.to_thread(self._from_data, record, work)
                except BaseException:
                    shutil.rmtree(work, ignore_errors=True)
                    raise
            return self._places[key]

    def _from_data(self, record: Record, work: Path) -> Place:
        prepared = self._prepared(record)
        if prepared and not record.sdist:
            record = replace(record, sdist=str(noted(prepared).get("sdist") or ""))
        try:
            if self.base_of(record) == "git":
                variant = bases.from_git(record, self._mirrors(), work / "base")
            else:
                # A release is not the commit, and no report may hide it.
                sdists = [place / "sdists" for place in self.places]
                variant = f"sdist variant: {bases.from_sdist(record, sdists, work / 'base')}"
            if prepared and (prepared / "tree").is_dir():
                # What an installation makes in the tree, as far as the tree does not have it.
                bases.add(prepared / "tree", work / "base")
            root = sites.source_root(work / "base")
            python = self._python(record)
            site = sites.build(record, self.places, work / "site", work / "testbed" / root, python)
        except (bases.NoBase, sites.NoSite) as error:
            raise _not_ready(str(error)) from None
        except BadRecord as error:
            raise ToolError(str(error)) from None
        readable = (work / "site", *([site.ready] if site.ready else []), python.prefix, python.path)
        confined = self._is_confined()
        return Place(
            base=work / "base",
            variant=variant,
            python=site.python,
            readable=readable,
            work=work,
            tree=work / "testbed",
            packages=site.packages,
            ready=site.ready,
            interpreter=python,
            notes=(f"packages that are not here: {site.missing}",) if site.missing else (),
            missing=site.missing,
            is_confined=confined,
        )

    def _python(self, record: Record) -> pythons.Interpreter:
        """The Python that the record asks for; our own where it asks for none."""
        minor = pythons.wanted(record.environment)
        found = pythons.found(minor, self.places, self._context.variables) if minor else pythons.own()
        if found is None:
            raise _not_ready(
                f"{record.id!r} asks for Python {minor}, which this instance does not see; run 'aenv data prepare "
                f"swebench --instances {record.id}', or let {pythons.VARIABLE} name an interpreter that it sees"
            )
        return found

    async def _from_image(self, record: Record, work: Path) -> Place:
        """The image's tree and its interpreter, copied here before the agent's first command."""
        if self._is_prepared or self._image not in ("", record.image):
            raise ToolError(f"{record.id!r} cannot be judged in an instance of another image")
        self._image = record.image
        sidecar, conda = self.sidecar(), self.variable("SWEBENCH_CONDA", _CONDA)
        await workplace.fetch(sidecar, workplace.TREE, work / "base")
        # Its packages know their own place, and the tree's: both lie here where they lie in the image.
        await workplace.fetch(sidecar, conda, Path(conda))
        python = Path(conda) / "bin" / "python"
        variant, tree = f"docker {record.image}", Path(workplace.TREE)
        # Images link to interpreters elsewhere at times; ours is no secret.
        readable = (Path(conda), pythons.own().prefix)
        return Place(work / "base", variant, python, readable, work, tree, is_confined=self._is_confined())

    def _is_confined(self) -> bool:
        if confine.landlock_version() >= 2:
            return True
        if self.variable("SWEBENCH_UNCONFINED") == "1":
            return False
        raise _not_ready(
            "this kernel has no landlock, so the tested code could read the answers; "
            "use Linux 5.19 or later, or accept that with SWEBENCH_UNCONFINED=1"
        )

    def sidecar(self) -> Sidecar:
        if self._context.sidecar is None:
            raise ToolError(
                "this instance has no sidecar for the agent to work in; create it with the native engine, "
                "and for SWEBENCH_BASE=docker name the image with 'datasource'"
            )
        return self._context.sidecar

    async def workplace(self) -> Sidecar:
        """The sidecar, with the tree in it."""
        sidecar, record = self.sidecar(), self.record()
        async with self._working:
            if not self._is_prepared:
                place = await self.place(record)
                self._digests = await asyncio.to_thread(workplace.digests, place.base)
                await workplace.send(sidecar, place.base, workplace.TREE, leave_out=".git")
                self._variables = await self._python_for_agent(sidecar, place)
                await workplace.begin(sidecar)
                self._is_prepared = True
        return sidecar

    async def _python_for_agent(self, sidecar: Sidecar, place: Place) -> dict[str, str]:
        """The variables of the agent's commands: a Python that finds what the tests need."""
        if place.packages is None or place.interpreter is None:
            return {"PATH": f"{self.variable('SWEBENCH_CONDA', _CONDA)}/bin:{_PATH}"}
        name = f"python{place.interpreter.minor}"
        packages = f"{workplace.VENV}/lib/{name}/site-packages"
        await workplace.send(sidecar, place.packages, packages)
        if place.ready:
            await workplace.send(sidecar, place.ready, f"{workplace.VENV}/ready")
            await sidecar.write_file(f"{packages}/ready.pth", f"{workplace.VENV}/ready\n")
        root = sites.source_root(place.base)
        await sidecar.write_file(f"{packages}/testbed.pth", f"{workplace.TREE}/{root}\n")
        base = str(place.interpreter.path)
        if (await sidecar.exec([base, "-c", "import sys"], timeout=60)).exit_code:
            # Not in the sidecar's view: a copy of it.
            await workplace.send(sidecar, place.interpreter.prefix, workplace.PYTHON)
            base = f"{workplace.PYTHON}/{place.interpreter.path.relative_to(place.interpreter.prefix)}"
        home = PurePosixPath(base).parent
        await sidecar.write_file(
            f"{workplace.VENV}/pyvenv.cfg", f"home = {home}\ninclude-system-site-packages = false\n"
        )
        links = " && ".join(f"ln -s {base} {workplace.VENV}/bin/{link}" for link in ("python", "python3"))
        await workplace.run(sidecar, f"mkdir -p {workplace.VENV}/bin && rm -f {workplace.VENV}/bin/* && {links}")
        return {"PATH": f"{workplace.VENV}/bin:{_PATH}", "VIRTUAL_ENV": workplace.VENV}

    @property
    def variables(self) -> dict[str, str]:
        """For the agent's commands."""
        return {"HOME": "/tmp", "LANG": "C.UTF-8", "PAGER": "cat", "GIT_PAGER": "cat", **self._variables}

    async def patch(self) -> tuple[str, list[str]]:
        """What the agent has done so far, and what of it could not be taken."""
        if not self._is_prepared:
            return "", []
        place = await self.place(self.record())
        return await workplace.changes(self.sidecar(), place.base, self._digests)

    async def grade(self, record: Record, patch: str, timeout: float) -> Grade:
        """The verdict on a patch, one after another. A caller who gives up ends it."""
        place = await self.place(record)
        async with self._judging:
            grader = self._graders.setdefault(record, Grader(record, place))
            work = asyncio.ensure_future(asyncio.to_thread(grader.grade, patch, timeout))
            try:
                return await asyncio.shield(work)
            except asyncio.CancelledError:
                grader.stop()
                await asyncio.wait([work])
                raise

    def forget(self) -> None:
        """Start over: the tree is brought anew at the next call that needs it."""
        self._is_prepared, self.submitted = False, None

    def known_exceptions(self) -> dict[str, dict[str, str]]:
        file = self.data / "known_exceptions.json"
        if not file.is_file():
            return {"gold": {}, "empty": {}}
        try:
            said = json.loads(file.read_text())
            return {
                kind: {str(id): str(why) for id, why in said.get(kind, {}).items()} for kind in ("gold", "empty")
            }
        except (ValueError, AttributeError) as error:
            raise ToolError(f"{str(file)!r} must be {{'gold': {{id: why}}, 'empty': {{…}}}}: {error}") from None


def _not_ready(reason: str) -> NotJudged:
    """Something is missing on this machine; the reason names what to do."""
    return NotJudged("not_ready", reason)


async def open_bench(context: Context) -> Bench:
    """The state of this instance."""
    return Bench(context)
