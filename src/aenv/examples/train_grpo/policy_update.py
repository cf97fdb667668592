"""GRPO: rewards of groups become advantages, and those a step of the policy. Supervised steps for the warm start.

The reward of an episode counts by how much better it is than others of the same task; there is no critic, and no
reference model.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .dialogue import PlayedEpisode, Policy, Transcript


@dataclass(frozen=True)
class UpdateSettings:
    """How far a step may go."""

    rate: float = 1e-3
    clip: float = 0.2
    passes: int = 1
    batch: int = 128
    largest_gradient: float = 1.0
    entropy: float = 0.1
    """Keeps the policy from one answer for all before it can tell problems apart."""


class Trainer:
    """The policy with its optimiser."""

    def __init__(self, policy: Policy, settings: UpdateSettings, seed: int) -> None:
        self._policy = policy
        self._settings = settings
        self._draw = random.Random(seed)
        self._optimiser = torch.optim.AdamW(
            policy.module.parameters(), lr=settings.rate, betas=(0.9, 0.98), weight_decay=0.01
        )

    def imitate(self, shown: Sequence[Transcript]) -> float:
        """One supervised step towards what was shown; gives the loss."""
        batch = _Batch(shown, self._device)
        loss = -(batch.log_probabilities(self._policy)[0] * batch.said).sum() / batch.said.sum()
        self._step(loss)
        return float(loss.detach())

    def learn(self, episodes: Sequence[PlayedEpisode]) -> float:
        """A step of GRPO; gives the share of episodes that had something to teach."""
        telling = [(one, advantage) for one, advantage in _advantages(episodes) if advantage]
        for _ in range(self._settings.passes if telling else 0):
            self._draw.shuffle(telling)
            for start in range(0, len(telling), self._settings.batch):
                part = telling[start : start + self._settings.batch]
                self._step(self._loss([one.transcript for one, _ in part], [worth for _, worth in part]))
        return len(telling) / max(1, len(episodes))

    def _loss(self, transcripts: Sequence[Transcript], advantages: Sequence[float]) -> Tensor:
        batch = _Batch(transcripts, self._device)
        logs, entropy = batch.log_probabilities(self._policy)
        worth = torch.tensor(advantages, device=self._device)[:, None]
        ratio = (logs - batch.before).exp()
        clip = self._settings.clip
        gain = torch.minimum(ratio * worth, ratio.clamp(1 - clip, 1 + clip) * worth)
        return -((gain + self._settings.entropy * entropy) * batch.said).sum() / batch.said.sum()

    def _step(self, loss: Tensor) -> None:
        self._optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._policy.module.parameters(), self._settings.largest_gradient)
        self._optimiser.step()

    @property
    def _device(self) -> torch.device:
        found: torch.device = next(self._policy.module.parameters()).device
        return found


class _Batch:
    """Transcripts side by side, padded on the right; a position stands for the token that comes after it."""

    def __init__(self, transcripts: Sequence[Transcript], device: torch.device) -> None:
        longest = max(len(one.tokens) for one in transcripts)

        def padded(rows: Sequence[Sequence[float]], kind: torch.dtype) -> Tensor:
            filled = [[*row, *[0] * (longest - len(row))] for row in rows]
            return torch.tensor(filled, dtype=kind, device=device)

        self.tokens = padded([one.tokens for one in transcripts], torch.long)
        self.said = padded([one.said for one in transcripts], torch.float)[:, 1:]
        self.before = padded([one.log_probabilities for one in transcripts], torch.float)[:, 1:]

    def log_probabilities(self, policy: Policy) -> tuple[Tensor, Tensor]:
        """Of each token that came, and the entropy where it was said."""
        logits = policy.logits(self.tokens[:, :-1])
        logs = torch.log_softmax(logits, -1)
        wanted = self.tokens[:, 1:].clamp(max=logits.shape[-1] - 1)
        return logs.gather(-1, wanted[..., None])[..., 0] * self.said, -(logs.exp() * logs).sum(-1) * self.said


def _advantages(episodes: Sequence[PlayedEpisode]) -> list[tuple[PlayedEpisode, float]]:
    """Each judged episode with how much better it was than its group, in standard deviations."""
    groups: dict[str, list[PlayedEpisode]] = defaultdict(list)
    for episode in episodes:
        if episode.reward is not None:
            groups[episode.task].append(episode)
    found = []
    for group in groups.values():
        rewards = [episode.reward or 0.0 for episode in group]
        mean = math.fsum(rewards) / len(rewards)
        spread = math.sqrt(math.fsum((reward - mean) ** 2 for reward in rewards) / len(rewards))
        if spread > 1e-6:
            found += [(one, (reward - mean) / spread) for one, reward in zip(group, rewards, strict=True)]
    return found
