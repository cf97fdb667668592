"""The YAML of tasks, `task.yaml` and `solution.yaml`: PyYAML within limits, since data is not ours.

Refused with their line: anchors, aliases and tags, by which a short text can stand for a huge value. Times stay
texts, so that all values have a JSON form.
"""

from __future__ import annotations

from typing import Any

import yaml
from yaml.constructor import ConstructorError

from aenv import ToolError

_MOST_CHARACTERS = 1 << 20
_MOST_LEVELS = 50
_TIME = "tag:yaml.org,2002:timestamp"


def loads(text: str) -> Any:
    """The value of a text. ToolError names the line that cannot be read."""
    if len(text) > _MOST_CHARACTERS:
        raise ToolError(f"a YAML file of a task has more than {_MOST_CHARACTERS} characters")
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ToolError(f"YAML line {line}: {error.problem}") from None
    except (yaml.YAMLError, ValueError) as error:  # a character that YAML has not; a number with very many digits
        raise ToolError(f"YAML: {str(error).partition(chr(10))[0]}") from None


class _Loader(yaml.SafeLoader):
    _level = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if event.anchor or getattr(event, "tag", None):
            raise ConstructorError(problem="anchors, aliases and tags are not read", problem_mark=event.start_mark)
        if self._level == _MOST_LEVELS:
            raise ConstructorError(problem=f"more than {_MOST_LEVELS} levels", problem_mark=event.start_mark)
        self._level += 1
        node = super().compose_node(parent, index)
        self._level -= 1
        return node


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in known if tag != _TIME]
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
