"""What TRL reads in a class that is made from an environment's tools."""

import inspect
import json

from transformers.utils import get_json_schema

from aenv.integrations.trl import _method, environment_class

factory = environment_class("gsm-tools@1.0.0", final_tools=("submit_answer",), split="train")
calculate = get_json_schema(factory.calculate)["function"]
place = {"type": "object", "properties": {"street": {"type": "string"}}}
of_place = {"$ref": "#/$defs/Place"}
fields = {
    "place": of_place,
    "other": {"anyOf": [of_place, {"type": "null"}]},
    "either": {"type": ["integer", "string"]},
}
made = _method(
    {"name": "difficult", "parameters": {"properties": fields, "required": [*fields], "$defs": {"Place": place}}}
)
print(
    json.dumps(
        {
            "signature": str(inspect.signature(factory.submit_answer)),
            "parameters": calculate["parameters"],
            "difficult": str(inspect.signature(made)),
            "description": calculate["description"],
        }
    )
)
