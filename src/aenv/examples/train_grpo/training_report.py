"""What came of a training: numbers in result.json, and the curve as a picture."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from pathlib import Path

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 720, 400, 64, 24, 70, 56
_STYLE = """
.paper { fill: #ffffff } .ink { fill: #1c2126 } .faint { fill: #59626b } .grid { stroke: #c3cad1 }
.each { fill: #2a78c4; fill-opacity: 0.35 } .mean { stroke: #2a78c4; fill: none; stroke-width: 2.5 }
.mark { fill: #b4530a; stroke: #b4530a }
@media (prefers-color-scheme: dark) {
.paper { fill: #14181c } .ink { fill: #eef1f4 } .faint { fill: #a6b0ba } .grid { stroke: #4a545e }
.each { fill: #5aa5ee } .mean { stroke: #5aa5ee } .mark { fill: #f0a35c; stroke: #f0a35c }
}
text { font: 12px system-ui, sans-serif } .title { font: 600 16px system-ui, sans-serif }
""".strip()


@dataclass(frozen=True)
class TrainingStep:
    """The mean reward of the episodes that a step learned from, and when that was."""

    seconds: float
    rollouts: int
    reward: float


@dataclass
class TrainingResult:
    """What result.json holds. `before` and `after` are mean rewards over the same held-out tasks."""

    environment: str
    model: str
    parameters: int
    device: str
    seed: int
    levels: list[int]
    instances: int
    held_out_tasks: int
    before: float
    after: float
    p_value: float
    rollouts: int
    rollouts_lost: int
    tool_calls: int
    seconds: float
    training_seconds: float
    rollouts_per_second: float
    environment_share: float
    """Share of the time of training in which the model waited for environments."""
    computing_share: float
    curve: list[TrainingStep] = field(default_factory=list)

    def write(self, folder: Path) -> None:
        """`result.json` and `curve.svg`."""
        (folder / "result.json").write_text(json.dumps(asdict(self), indent=2) + "\n")
        (folder / "curve.svg").write_text(picture(self))


def sign_test(before: Sequence[float], after: Sequence[float]) -> float:
    """How likely at least so many improvements are where before and after are alike: exact, paired, one-sided."""
    better = sum(new > old for old, new in zip(before, after, strict=True))
    worse = sum(new < old for old, new in zip(before, after, strict=True))
    changed = better + worse
    return float(Fraction(sum(math.comb(changed, n) for n in range(better, changed + 1)), 2**changed))


def picture(result: TrainingResult) -> str:
    """The reward over time: each step, their running mean, and the held-out tasks before and after."""
    end = max([step.seconds for step in result.curve], default=1.0)
    inner, tall = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def at(seconds: float, reward: float) -> tuple[float, float]:
        return _LEFT + inner * seconds / end, _TOP + tall * (1 - reward)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="reward of a training on {result.environment}">',
        f'<style>{_STYLE}</style><rect class="paper" width="100%" height="100%"/>',
        _text("ink title", 24, 30, f"GRPO on {result.environment}, levels {', '.join(map(str, result.levels))}"),
        _text(
            "faint",
            24,
            50,
            f"held-out tasks: {result.before:.3f} before, {result.after:.3f} after (p = {result.p_value:.1g}, "
            f"{result.held_out_tasks} tasks); {result.rollouts:,} rollouts in {result.training_seconds:.0f} s",
        ),
    ]
    for level in (0.0, 0.25, 0.5, 0.75, 1.0):
        x, y = at(0, level)
        parts.append(
            f'<path class="grid" d="M{x:.1f} {y:.1f}h{inner}"/>' + _text("faint", 30, y + 4, f"{level:g}")
        )
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts.append(_text("faint", at(end * share, 0)[0] - 10, _HEIGHT - 34, f"{end * share:.0f} s"))
    parts += [_dot("each", *at(step.seconds, step.reward), 2.5) for step in result.curve]
    mean = [at(step.seconds, reward) for step, reward in zip(result.curve, _smooth(result.curve), strict=True)]
    if mean:
        parts.append(f'<path class="mean" d="M{" L".join(f"{x:.1f} {y:.1f}" for x, y in mean)}"/>')
    parts += [_dot("mark", *at(0, result.before), 6), _dot("mark", *at(end, result.after), 6)]
    parts.append(_text("faint", _LEFT, _HEIGHT - 12, "mean reward of each step; large dots: held-out tasks"))
    return "\n".join([*parts, "</svg>", ""])


def _smooth(curve: Sequence[TrainingStep], width: int = 9) -> list[float]:
    rewards = [step.reward for step in curve]
    windows = [rewards[max(0, n - width + 1) : n + 1] for n in range(len(rewards))]
    return [math.fsum(window) / len(window) for window in windows]


def _dot(kind: str, x: float, y: float, size: float) -> str:
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{size}"/>'


def _text(kind: str, x: float, y: float, text: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{text}</text>'
