"""A model that needs no download: what it says is a script, and its tokens are bytes and the words of a chat."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from aenv.examples.trainers import expression

_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content or '' }}{% for c in m.tool_calls or [] %}"
    "<tool_call>\n{{ c.function | tojson }}\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_RESULT = re.compile(
    r"(?:<\|im_start\|>tool|<tool_response>)\n(.*?)(?:<\|im_end\|>|\n</tool_response>)", re.DOTALL
)


def tokenizer(template: str = _TEMPLATE, words: Sequence[str] = ()) -> PreTrainedTokenizerFast:
    """With a chat template; a tool call is JSON between tags. `words` are those that another template has."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={letter: n for n, letter in enumerate(alphabet)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    made.add_tokens(["<tool_call>", "</tool_call>", *words])
    return PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="<|im_end|>", pad_token="<|endoftext|>", chat_template=template
    )


def answer(conversation: str, sign: str) -> str:
    """Calculates with the numbers of the problem, then submits the result, then says that it is done."""
    results = _RESULT.findall(conversation)
    if len(results) > 1:
        return "Done.<|im_end|>"
    if results:
        call = {"name": "submit_answer", "arguments": {"answer": results[0]}}
    else:
        problem = conversation.rpartition("<|im_start|>user")[2]
        call = {"name": "calculate", "arguments": {"expression": expression(problem, sign)}}
    return f"<tool_call>\n{json.dumps(call)}\n</tool_call><|im_end|>"
