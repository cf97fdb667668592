"""The small policy: a transformer, of a third of a million parameters unless told, trained from nothing."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from . import gsm_tokens
from .dialogue import ToolCall, Transcript

_CONTEXT = 256


@dataclass(frozen=True)
class TransformerShape:
    """How large the transformer is."""

    width: int = 96
    layers: int = 2
    heads: int = 4


class _Block(nn.Module):
    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.before_attention = nn.LayerNorm(shape.width)
        self.queries_keys_values = nn.Linear(shape.width, 3 * shape.width, bias=False)
        self.merged = nn.Linear(shape.width, shape.width, bias=False)
        self.before_thought = nn.LayerNorm(shape.width)
        self.thought = nn.Sequential(
            nn.Linear(shape.width, 4 * shape.width), nn.GELU(), nn.Linear(4 * shape.width, shape.width)
        )

    def forward(self, x: Tensor, cache: _LayerCache | None) -> Tensor:
        rows, length, width = x.shape
        split = self.queries_keys_values(self.before_attention(x)).view(rows, length, 3, self.heads, -1)
        queries, keys, values = (split[:, :, n].transpose(1, 2) for n in range(3))
        if cache is None:
            seen = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        else:
            keys, values = cache.extended(keys, values)
            seen = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=cache.mask)
        x = x + self.merged(seen.transpose(1, 2).reshape(rows, length, width))
        thought: Tensor = x + self.thought(self.before_thought(x))
        return thought


class _LayerCache:
    """Keys and values of one layer. A row's token at position p sees positions up to p, whatever lies beyond."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self.keys, self.values = keys, values
        self.positions = self.mask = torch.empty(0)

    def extended(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        rows = torch.arange(keys.shape[0], device=keys.device)[:, None]
        self.keys[rows, :, self.positions] = keys.transpose(1, 2).to(self.keys.dtype)
        self.values[rows, :, self.positions] = values.transpose(1, 2).to(self.values.dtype)
        length = self.mask.shape[-1]
        return self.keys[:, :, :length], self.values[:, :, :length]


class SmallTransformer(nn.Module):
    """Causal, with learned positions; says the few tokens of calls, reads those of problems too."""

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        self.tokens = nn.Embedding(gsm_tokens.READ, shape.width)
        self.positions = nn.Embedding(_CONTEXT, shape.width)
        self.blocks = nn.ModuleList(_Block(shape) for _ in range(shape.layers))
        self.last = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, gsm_tokens.SAID, bias=False)
        for part in self.modules():
            if isinstance(part, nn.Linear | nn.Embedding):
                nn.init.normal_(part.weight, std=0.02)

    def forward(
        self, tokens: Tensor, positions: Tensor | None = None, caches: list[_LayerCache] | None = None
    ) -> Tensor:
        where = torch.arange(tokens.shape[1], device=tokens.device) if positions is None else positions
        x = self.tokens(tokens) + self.positions(where)
        for index, block in enumerate(self.blocks):
            x = block(x, caches[index] if caches else None)
        logits: Tensor = self.head(self.last(x))
        return logits


class SmallPolicy:
    """The transformer as a policy."""

    name = "small"

    def __init__(self, device: str, shape: TransformerShape, seed: int) -> None:
        torch.manual_seed(seed)
        self.shape = shape
        self.device = torch.device(device)
        self.module = SmallTransformer(shape).to(self.device)
        self.generator = torch.Generator(self.device).manual_seed(seed)

    def precision(self) -> AbstractContextManager[Any]:
        """bf16 where there is hardware for it."""
        found: AbstractContextManager[Any] = torch.autocast(
            self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"
        )
        return found

    def open(self, problems: Sequence[str]) -> SmallTalk:
        return SmallTalk(self, problems)

    def logits(self, tokens: Tensor) -> Tensor:
        with self.precision():
            logits: Tensor = self.module(tokens)
        return logits.float()

    def demonstrate(self, problem: str, draw: random.Random) -> Transcript:
        return gsm_tokens.demonstration(problem, draw)


class SmallTalk:
    """Episodes in lock step, with what was computed of each kept."""

    def __init__(self, policy: SmallPolicy, problems: Sequence[str]) -> None:
        self._policy = policy
        self._sheets = [gsm_tokens.Sheet() for _ in problems]
        self.transcripts = [Transcript() for _ in problems]
        self._pending = [sheet.read(problem) for sheet, problem in zip(self._sheets, problems, strict=True)]
        self._fed = torch.zeros(len(problems), dtype=torch.long, device=policy.device)
        shape, device = policy.shape, policy.device
        room = (len(problems), shape.heads, _CONTEXT, shape.width // shape.heads)
        kind = torch.bfloat16 if device.type == "cuda" else torch.float32
        self._caches = [
            _LayerCache(torch.zeros(room, dtype=kind, device=device), torch.zeros(room, dtype=kind, device=device))
            for _ in range(shape.layers)
        ]
        self._next = torch.zeros(len(problems), gsm_tokens.SAID, device=device)

    @torch.no_grad()
    def speak(self, rows: Sequence[int]) -> dict[int, ToolCall | None]:
        for transcript, pending in zip(self.transcripts, self._pending, strict=True):
            transcript.read(pending)
        self._feed(self._pending)
        self._pending = [[] for _ in self._pending]
        said: dict[int, list[int]] = {row: [] for row in rows}
        speaking = list(rows)
        for _ in range(gsm_tokens.LONGEST_CALL):
            logs = torch.log_softmax(self._next, -1)
            drawn = torch.multinomial(logs.exp(), 1, generator=self._policy.generator)
            tokens, chances = drawn[:, 0].tolist(), logs.gather(1, drawn)[:, 0].tolist()
            for row in speaking:
                said[row].append(tokens[row])
                self.transcripts[row].say(tokens[row], chances[row])
            now = set(speaking)
            self._feed([[tokens[row]] if row in now else [] for row in range(len(self._pending))])
            speaking = [row for row in speaking if tokens[row] != gsm_tokens.END]
            if not speaking:
                break
        return {row: self._sheets[row].call(tokens) for row, tokens in said.items()}

    def hear(self, row: int, result: str, is_error: bool) -> None:
        self._pending[row] = self._sheets[row].hear(result, is_error)

    def _feed(self, tokens: Sequence[Sequence[int]]) -> None:
        """Let each row read its tokens. Rows that have none are padded, and overwritten by what they read next."""
        longest = max(map(len, tokens))
        if not longest:
            return
        device = self._policy.device
        padded = torch.tensor([[*row, *[0] * (longest - len(row))] for row in tokens], device=device)
        lengths = torch.tensor([len(row) for row in tokens], device=device)
        positions = (self._fed[:, None] + torch.arange(longest, device=device)).clamp(max=_CONTEXT - 1)
        top = int(positions.max()) + 1
        mask = (torch.arange(top, device=device) <= positions[:, :, None])[:, None]
        for cache in self._caches:
            cache.positions, cache.mask = positions, mask
        with self._policy.precision():
            logits = self._policy.module(padded, positions, self._caches).float()
        last = logits[torch.arange(len(tokens), device=device), (lengths - 1).clamp(min=0)]
        self._next = torch.where((lengths > 0)[:, None], last, self._next)
        self._fed += lengths
