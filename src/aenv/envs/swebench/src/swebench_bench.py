"""The state of one instance: its record, its base tree, where the agent works, and what it has handed in.

Each part is made at the first call that needs it. Not here: tools and rewards (`swebench_env.py`).
"""

from __future__ import annotations

import asyncio
import json
import secrets
import shutil
import sys
from pathlib import Path

import _swebench_confine as confine
import swebench_bases as bases
import swebench_sites as sites
import swebench_workplace as workplace
from swebench_grading import Grade, Grader, Place
from swebench_records import BadRecord, Record
from swebench_sources import records

from aenv import Context, SecondPart, ToolError

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
        """The folder of data. ToolError says how to get one."""
        place = self.variable("SWEBENCH_DATA_DIR")
        if not place or not Path(place).exists():
            raise ToolError(
                "no data for swebench: run 'aenv data pull swebench --from URL|DIR' (without --from it says what "
                "to fetch), or set SWEBENCH_DATA_DIR to a folder that has it"
            )
        return Path(place)

    @property
    def base(self) -> str:
        """Where base trees come from. Left out: an image where there is one, else whatever the data has."""
        asked = self.variable("SWEBENCH_BASE")
        if asked and asked not in BASES:
            raise ToolError(f"SWEBENCH_BASE is {asked!r}; use one of {', '.join(BASES)}")
        if asked:
            return asked
        if self._mirrors().is_dir():
            return "git"
        return "sdist" if (self.data / "sdists").is_dir() else "docker"

    def _mirrors(self) -> Path:
        return Path(self.variable("SWEBENCH_GIT_DIR") or self.data / "git")

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
                    if self.base == "docker":
                        self._places[key] = await self._from_image(record, work)
                    else:
                        self._places[key] = await asyncio.to_thread(self._from_data, record, work)
                except BaseException:
                    shutil.rmtree(work, ignore_errors=True)
                    raise
            return self._places[key]

    def _from_data(self, record: Record, work: Path) -> Place:
        try:
            if self.base == "git":
                variant = bases.from_git(record, self._mirrors(), work / "base")
            else:
                # A release is not the commit, and no report may hide it.
                variant = f"sdist variant: {bases.from_sdist(record, self.data / 'sdists', work / 'base')}"
            site = sites.build(record, self.data, work / "site")
        except (bases.NoBase, sites.NoSite, BadRecord) as error:
            raise ToolError(str(error)) from None
        readable = (work / "site", site.packages, Path(sys.base_prefix), sites.interpreter())
        confined = self._is_confined()
        return Place(
            work / "base", variant, site.python, readable, work, site.packages, None, site.notes, confined
        )

    async def _from_image(self, record: Record, work: Path) -> Place:
        """The image's tree and its interpreter, copied here before the agent's first command."""
        if self._is_prepared or self._image not in ("", record.image):
            raise ToolError(f"{record.id!r} cannot be judged in an instance of another image")
        self._image = record.image
        second, conda = self.second(), self.variable("SWEBENCH_CONDA", _CONDA)
        await workplace.fetch(second, workplace.TREE, work / "base")
        # Its packages know their own place, and the tree's: both lie here where they lie in the image.
        await workplace.fetch(second, conda, Path(conda))
        python = Path(conda) / "bin" / "python"
        variant, tree = f"docker {record.image}", Path(workplace.TREE)
        # Images link to interpreters elsewhere at times; ours is no secret.
        readable = (Path(conda), Path(sys.base_prefix))
        return Place(work / "base", variant, python, readable, work, None, tree, (), self._is_confined())

    def _is_confined(self) -> bool:
        if confine.landlock_version() >= 2:
            return True
        if self.variable("SWEBENCH_UNCONFINED") == "1":
            return False
        raise ToolError(
            "this kernel has no landlock, so the tested code could read the answers; "
            "use Linux 5.19 or later, or accept that with SWEBENCH_UNCONFINED=1"
        )

    def second(self) -> SecondPart:
        if self._context.second is None:
            raise ToolError(
                "this instance has no second part for the agent to work in; create it with the native engine, "
                "and for SWEBENCH_BASE=docker name the image with 'datasource'"
            )
        return self._context.second

    async def workplace(self) -> SecondPart:
        """The second part, with the tree in it."""
        second, record = self.second(), self.record()
        async with self._working:
            if not self._is_prepared:
                place = await self.place(record)
                self._digests = await asyncio.to_thread(workplace.digests, place.base)
                await workplace.send(second, place.base, workplace.TREE, leave_out=".git")
                self._variables = await self._python_for_agent(second, place)
                await workplace.begin(second)
                self._is_prepared = True
        return second

    async def _python_for_agent(self, second: SecondPart, place: Place) -> dict[str, str]:
        """The variables of the agent's commands: a Python that finds what the tests need."""
        if place.packages is None:
            return {"PATH": f"{self.variable('SWEBENCH_CONDA', _CONDA)}/bin:{_PATH}"}
        name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        packages = f"{workplace.VENV}/lib/{name}/site-packages"
        base = str(sites.interpreter())
        await workplace.send(second, place.packages, packages)
        await second.write_file(
            f"{packages}/testbed.pth", "".join(f"{workplace.TREE}/{name}\n" for name in ("src", "lib", ""))
        )
        await second.write_file(
            f"{workplace.VENV}/pyvenv.cfg", f"home = {Path(base).parent}\ninclude-system-site-packages = false\n"
        )
        links = " && ".join(f"ln -s {base} {workplace.VENV}/bin/{link}" for link in ("python", "python3"))
        await workplace.run(second, f"mkdir -p {workplace.VENV}/bin && rm -f {workplace.VENV}/bin/* && {links}")
        works = await second.exec([f"{workplace.VENV}/bin/python", "-c", "import sys"], timeout=60)
        if works.exit_code:  # the interpreter is not in the second part's view: whatever is there then
            await workplace.run(second, f"rm -rf {workplace.VENV}/bin")
            return {"PATH": _PATH, "PYTHONPATH": f"{packages}:{workplace.TREE}/src:{workplace.TREE}"}
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
        return await workplace.changes(self.second(), place.base, self._digests)

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


async def open_bench(context: Context) -> Bench:
    """The state of this instance."""
    return Bench(context)
