"""Code that only defines things is loaded once for all instances; any other is loaded by each."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from aenv.inside.zygote.purity import is_same_for_all

PURE = {
    "tools": '''
        """An environment."""
        from __future__ import annotations
        import logging, re
        from dataclasses import dataclass, field
        from pathlib import Path
        from typing import TYPE_CHECKING, Annotated
        from pydantic import Field
        from aenv import Context, Depends, register_tool
        import helpers
        from .helpers import double

        if TYPE_CHECKING:
            from collections.abc import Iterable

        logger = logging.getLogger(__name__)
        WORD = re.compile(r"\\w+")
        LIMIT: int = 10 * 1024
        state = {"calls": 0, "seen": [word for word in ("a", "b")]}
        HOME = Path("/workspace") / "notes"

        @dataclass
        class Note:
            text: str
            tags: tuple[str, ...] = ()
            links: list[str] = field(default_factory=list)

        class Store(dict):
            """Keeps things."""
            limit = LIMIT
            def add(self, note): self[note.text] = note

        def open_store(): return Store()

        @register_tool(name="add", timeout=5)
        async def add(a: Annotated[int, Field(ge=0)], b: int = -1, store=Depends(open_store)) -> int:
            import os
            return a + b + len(os.environ)
    ''',
    "optional": """
        try:
            import tomllib
        except ImportError:
            tomllib = None
    """,
}
IMPURE = {
    "a variable": "import os\nDOMAIN = os.environ['DOMAIN']",
    "a variable with a default": "import os\nDOMAIN = os.getenv('DOMAIN', 'x')",
    "a variable by its own name": "from os import environ\nDOMAIN = environ['DOMAIN']",
    "an argument": "import sys\nNAME = sys.argv[1:]",
    "the time": "import time\nSTARTED = time.time()",
    "chance": "import random\nSEED = random.random()",
    "a file": "DATA = open('data.json').read()",
    "something printed": "print('loaded')",
    "a connection": "import sqlite3\nDB = sqlite3.connect(':memory:')",
    "a package of others": "import numpy",
    "a decorator of their own": "def twice(f): return f\n@twice\ndef f(): pass",
    "a decorator of others": "import click\n@click.command()\ndef f(): pass",
    "a default that is worked out": "import time\ndef f(now=time.time()): pass",
    "a call of their own": "def make(): return 1\nX = make()",
    "their own under a known name": "def Path(x): return open(x)\nX = Path('y')",
    "a loop": "for x in (1, 2): pass",
    "a with": "with open('x'): pass",
    "a change of something else": "import sys\nsys.dont_write_bytecode = True",
    "an item of something else": "import json\njson.x = {}\njson.x['a'] = 1",
    "a class that does something": "class A:\n    print('hello')",
    "a call in a container": "import uuid\nIDS = [uuid.uuid4()]",
    "a call in an f-string": "import uuid\nID = f'{uuid.uuid4()}'",
    "a call in a base": "def base(): return object\nclass A(base()): pass",
    "a deletion": "x = 1\ndel x",
    "a mistake": "def broken(:",
}


def project(folder: Path, code: str) -> str:
    (folder / "environment.py").write_text(textwrap.dedent(code))
    (folder / "helpers.py").write_text("def double(x): return 2 * x\n")
    return str(folder)


@pytest.mark.parametrize("name", PURE)
def test_code_that_only_defines_things_is_the_same_for_all(tmp_path: Path, name: str) -> None:
    assert is_same_for_all(project(tmp_path, PURE[name]))


@pytest.mark.parametrize("name", IMPURE)
def test_code_that_does_more_is_loaded_by_each_instance(tmp_path: Path, name: str) -> None:
    assert not is_same_for_all(project(tmp_path, IMPURE[name]))


def test_one_file_that_does_more_is_enough(tmp_path: Path) -> None:
    root = project(tmp_path, "X = 1")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "_deep.py").write_text("import time\nNOW = time.time()")
    assert not is_same_for_all(root)
