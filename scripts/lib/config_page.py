"""The page docs/config.md, made of the declarations in src/aenv/base/config. `scripts/fix` writes it."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aenv.base.config.deploy import Deploy, ServiceDefaults, SidecarSource
from aenv.base.config.project import Build, Data, Grants, Project, ProjectTest, UsedEnvironment
from aenv.base.config.sections import ALL, ConfigField, ConfigSection

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "config.md"
SECTIONS: dict[str, type[ConfigSection]] = {
    "The environment": Project,
    "buildConfig": Build,
    "testConfig": ProjectTest,
    "data": Data,
    "uses": UsedEnvironment,
    "grants": Grants,
    "deployConfig": Deploy,
    "deployConfig.service": ServiceDefaults,
    "deployConfig.sidecar": SidecarSource,
}
INTRODUCTION = """\
# config.json

<!-- Made by scripts/fix from src/aenv/base/config: change the declarations there, and not this page. -->

`config.json` is the file at the top of a project that says what the environment is and what its instances may use.
Only `name` and `version` are required. A wrong value is an error with its line, when the project is read:

```
config.json:12: deployConfig.ttl: bad duration 'soon'; write it as '30s', '30m', '2h' or '1h30m'
```

An unknown field has no effect. A warning names it, and the field that may be meant; a hub keeps it. An empty
text is as if the field were not there. A hub stores `buildConfig`, `testConfig` and `deployConfig` as they are
written.

| type | how it is written |
|---|---|
| duration | `"30s"`, `"30m"`, `"1h30m"`, `"7d"`, or a number of seconds |
| cores | `"500m"`, `"0.5"`, `"2"`, or a number |
| size | `"512Mi"`, `"2Gi"`, `"10G"`, or a number of bytes |
| network | `"none"`, `"full"`, or `{"egress": ["pypi.example:443", "*.data.example"]}` |
| secret | `{"secret": "NAME"}` in the place of a variable's value |

The column "engines" names those that honour a field. What the gateway or the command line does holds for all.
The http engine gives its server what its [contract](docker.md#any-other-engine) has words for.
"""
HEAD = "| field | type | default | example | engines | meaning |\n|---|---|---|---|---|---|"


def page() -> str:
    """The whole page."""
    return (
        "\n\n".join([INTRODUCTION.rstrip(), *(_section(title, kind) for title, kind in SECTIONS.items())]) + "\n"
    )


def _section(title: str, section: type[ConfigSection]) -> str:
    parts = [f"## {title}", inspect.getdoc(section) or "", "\n".join([HEAD, *_rows(section)])]
    if section.unused:
        unused = ", ".join(f"`{key}`" for key in section.unused)
        parts.append(
            f"Published projects may have {unused} as well; such a field is accepted, and changes nothing."
        )
    return "\n\n".join(parts)


def _rows(section: type[ConfigSection]) -> Iterator[str]:
    meanings = _meanings(section)
    defaults = {each.name: each.default for each in dataclasses.fields(section)}
    for key, (name, told) in section.entries().items():
        cells = [
            f"`{key}`",
            told.kind.words,
            "required" if key in section.required else told.otherwise or _spelled(defaults[name]),
            f"`{json.dumps(told.example)}`",
            _engines(told),
            meanings[name],
        ]
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _engines(told: ConfigField) -> str:
    return "all" if told.engines == ALL else ", ".join(told.engines) or "none"


def _spelled(default: Any) -> str:
    """A default as config.json would say it; nothing for one that it could not say."""
    if default is None or default == "":
        return "none"
    if isinstance(default, bool | int | str | tuple):
        return f"`{json.dumps(default)}`"
    return "`{}`"  # an object, of which every field has its own default


def _meanings(section: type[ConfigSection]) -> dict[str, str]:
    """The text that stands below each attribute, by the attribute."""
    [body] = ast.parse(textwrap.dedent(inspect.getsource(section))).body
    assert isinstance(body, ast.ClassDef)
    found = {}
    for declared, text in zip(body.body, body.body[1:], strict=False):
        match declared, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(meaning))):
                found[name] = " ".join(meaning.split())
    return found


if __name__ == "__main__":
    PAGE.write_text(page())
