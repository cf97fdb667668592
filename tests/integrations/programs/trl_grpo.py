"""One step of TRL's GRPOTrainer: its own loop of tool calls, in real instances, with their rewards.

The model is tiny and knows nothing; so that it calls tools at all, what it says is written for it.
Log-probabilities, advantages and the step of the optimiser are its own.
"""

import inspect
import json
import re
from pathlib import Path
from typing import Any

import torch
import trl
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from transformers.utils import get_json_schema
from trl import GRPOConfig, GRPOTrainer

from aenv.integrations.trl import _method, environment_class, rows

torch.set_num_threads(1)
NAME = "gsm-tools@1.0.0"
OPTIONS = {"final_tools": ("submit_answer",), "split": "train", "variables": {"GSM_DIFFICULTY": "1"}}


def tokenizer() -> PreTrainedTokenizerFast:
    """Bytes, and the words of a chat."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={letter: n for n, letter in enumerate(alphabet)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    made.add_special_tokens(special)
    made.add_tokens(["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"])
    wrapped = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    wrapped.chat_template = (Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja").read_text()
    return wrapped


class Scripted(Qwen3ForCausalLM):
    """Submits the two numbers of the problem, with another sign in each row; then says that it is done."""

    def generate(self, input_ids: Any, **options: Any) -> Any:
        said = []
        for row, ids in enumerate(input_ids):
            text = TOKENS.decode(ids)
            last = text.rpartition("<|im_start|>user")[2]
            if "<tool_response>" in last:
                answer = "Done.<|im_end|>"
            else:
                numbers = re.findall(r"\d+", last)
                value = str(eval("+-*/"[row % 4].join(numbers)))
                call = {"name": "submit_answer", "arguments": {"answer": value.removesuffix(".0")}}
                answer = f"<tool_call>\n{json.dumps(call)}\n</tool_call><|im_end|>"
            said.append(torch.tensor(TOKENS(answer)["input_ids"]))
        longest = max(map(len, said))
        padded = [torch.nn.functional.pad(one, (0, longest - len(one)), value=TOKENS.pad_token_id) for one in said]
        return torch.cat([input_ids, torch.stack(padded)], dim=1)


TOKENS = tokenizer()
factory = environment_class(NAME, **OPTIONS)
calculate = get_json_schema(factory.calculate)["function"]
submit = factory.submit_answer

size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
config = Qwen3Config(vocab_size=len(TOKENS), num_key_value_heads=2, head_dim=16, **size)
model = Scripted(config)
before = model.model.embed_tokens.weight.detach().clone()
trainer = GRPOTrainer(
    model=model,
    processing_class=TOKENS,
    train_dataset=Dataset.from_list(rows(NAME, limit=2, **OPTIONS)),
    environment_factory=factory,
    args=GRPOConfig(
        output_dir="out",
        per_device_train_batch_size=4,
        num_generations=4,
        max_steps=1,
        learning_rate=0.1,
        max_completion_length=256,
        use_cpu=True,
        report_to=[],
        logging_steps=1,
        save_strategy="no",
    ),
)
trainer.train()
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
logged = next(line for line in trainer.state.log_history if "reward" in line)
print(
    json.dumps(
        {
            "reward": logged["reward"],
            "calls": logged["tools/call_frequency"],
            "failures": logged["tools/failure_frequency"],
            "learned": not torch.equal(before, model.model.embed_tokens.weight),
            "signature": str(inspect.signature(submit)),
            "parameters": calculate["parameters"],
            "difficult": str(inspect.signature(made)),
            "description": calculate["description"],
        }
    )
)
