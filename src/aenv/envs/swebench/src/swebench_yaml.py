"""The YAML of task folders, `task.yaml` and `environment.yml`: PyYAML within limits, since data is not ours.

Refused with its line: anchors, aliases and tags, by which a short text can stand for a huge value, and a key that
stands twice. Times stay texts, as in the other forms of records.
"""

from __future__ import annotations

from typing import Any

import yaml
from yaml.constructor import ConstructorError

_MOST_CHARACTERS = 1 << 20
_MOST_LEVELS = 50
_TIME = "tag:yaml.org,2002:timestamp"


class YamlError(ValueError):
    """A text that is not YAML, or not the part of it that is read here."""


def parse(text: str) -> Any:
    """What a document says: dicts, lists, strings, numbers, true, false and None."""
    if len(text) > _MOST_CHARACTERS:
        raise YamlError(f"it has more than {_MOST_CHARACTERS} characters")
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise YamlError(f"line {line}: {error.problem}") from None
    except (yaml.YAMLError, ValueError) as error:  # a character that YAML has not; a number with very many digits
        raise YamlError(str(error).partition("\n")[0]) from None


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

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        found = super().construct_mapping(node, deep)
        if len(found) < len(node.value):
            raise ConstructorError(problem="a key stands twice in this mapping", problem_mark=node.start_mark)
        return found


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in known if tag != _TIME]
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
