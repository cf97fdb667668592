"""smolagents (`pip install 'smolagents>=1.26'`): the tools of an environment as its `Tool`s.

    from smolagents import OpenAIModel, ToolCallingAgent
    from aenv.integrations.smolagents import tools

    with SyncEnvironment("gsm-tools@1.0.0") as env:
        agent = ToolCallingAgent(tools(env), model=OpenAIModel("gpt-5-mini"))
        print(agent.run("Read the problem and solve it."))

smolagents has no async. With an Environment, run the agent in a thread: `await asyncio.to_thread(agent.run, "…")`.
"""

from __future__ import annotations

import io
import keyword
import re
from collections.abc import Mapping
from typing import Any

import PIL.Image
from smolagents import Tool

from .tool_calls import InstanceTool, Picture, ToolAnswer, ToolsOf, resolved, types_of


class SmolTool(Tool):
    """A tool of an instance."""

    skip_forward_signature_validation = True  # it takes what `inputs` lists
    output_type = "any"

    def __init__(self, tool: InstanceTool) -> None:
        schema = resolved(tool.schema)
        self.name = _identifier(tool.name)
        self.description = tool.description
        required = set(schema.get("required", ()))
        self.inputs = {
            name: _input(described, is_required=name in required)
            for name, described in schema.get("properties", {}).items()
        }
        self._tool = tool
        super().__init__()

    def forward(self, **arguments: Any) -> Any:
        """What the tool says; RuntimeError where it fails, which smolagents tells the model."""
        return _output(self._tool.call_blocking(arguments))


def _identifier(name: str) -> str:
    """The name as a name of Python. smolagents refuses all others, since its agents write calls as code."""
    written = re.sub(r"\W", "_", name)
    return f"{written}_" if keyword.iskeyword(written) else re.sub(r"^(?=\d)", "_", written)


def _input(described: Mapping[str, Any], *, is_required: bool) -> dict[str, Any]:
    """As smolagents wants it: a type and a description. What else the schema says stays below `allOf`."""
    types = types_of(described)
    entry: dict[str, Any] = {
        "type": types[0] if len(types) == 1 else types,
        "description": described.get("description", ""),
        # smolagents would write an `anyOf` beside the type anew, and lose what it says of each member.
        "allOf": [dict(described)],
    }
    return entry if is_required else {**entry, "nullable": True}


def _output(answer: ToolAnswer) -> Any:
    if answer.is_error:
        raise RuntimeError(answer.text)
    if not answer.pictures:
        return answer.text
    images = [_image(picture) for picture in answer.pictures]
    if not answer.text and len(images) == 1:
        return images[0]
    return [*([answer.text] if answer.text else []), *images]


def _image(picture: Picture) -> Any:
    """Of Pillow; its type and its size where Pillow cannot read it, as with SVG."""
    try:
        return PIL.Image.open(io.BytesIO(picture.content))
    except PIL.UnidentifiedImageError:
        return f"[{picture.mime_type}, {len(picture.content)} bytes]"


tools = ToolsOf(SmolTool)
"""`tools(env)` of a SyncEnvironment, or `await tools(env)` for an agent that runs in a thread. A tool that fails
raises, which smolagents tells the model; images are those of Pillow, alone or in a list after the text."""
