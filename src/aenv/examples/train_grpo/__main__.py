"""The command line of the training."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

try:
    import torch  # noqa: F401 - before anything is begun
except ImportError:
    sys.exit(
        "train_grpo needs PyTorch; its build for the CPU will do, which is a tenth as large: see PyTorch's own "
        "page of installation; else install it with: pip install 'torch>=2.6' 'numpy>=1.26'"
    )

from .policy_update import UpdateSettings
from .small_policy import TransformerShape
from .training_run import NoTimeLeft, TrainingRun, TrainingSettings


def main() -> None:
    """Train, and write what came of it."""
    settings = TrainingSettings()
    parser = argparse.ArgumentParser(prog="python -m aenv.examples.train_grpo", description=main.__doc__)
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="folder for curve.svg and result.json"
    )
    parser.add_argument("--minutes", type=float, default=settings.minutes, help="time for everything")
    parser.add_argument("--seed", type=int, default=settings.seed, help="seed of model, tasks and draws")
    parser.add_argument("--levels", type=int, nargs="+", default=settings.levels, help="difficulties, 1 to 5")
    parser.add_argument("--model", choices=("small", "smollm2"), default=settings.model)
    parser.add_argument("--device", default=settings.device, help="cpu, or cuda")
    parser.add_argument("--instances", type=int, default=settings.instances, help="instances that play episodes")
    parser.add_argument("--lanes", type=int, default=settings.lanes, help="groups of instances that take turns")
    parser.add_argument("--threads", type=int, default=settings.threads, help="threads of the model on the CPU")
    parser.add_argument("--tasks", type=int, default=settings.tasks_per_step, help="tasks of each step")
    parser.add_argument("--group", type=int, default=settings.group, help="episodes of each task")
    parser.add_argument("--held-out", type=int, default=settings.held_out, help="tasks before and after")
    parser.add_argument(
        "--warm-steps", type=int, default=settings.warm_steps, help="supervised steps of the form of calls"
    )
    parser.add_argument("--steps", type=int, default=settings.steps, help="at most so many steps of GRPO")
    parser.add_argument("--width", type=int, default=settings.shape.width, help="width of the small transformer")
    parser.add_argument(
        "--layers", type=int, default=settings.shape.layers, help="layers of the small transformer"
    )
    parser.add_argument("--heads", type=int, default=settings.shape.heads, help="attention heads of each layer")
    parser.add_argument("--rate", type=float, default=settings.update.rate, help="learning rate")
    parser.add_argument("--batch", type=int, default=settings.update.batch, help="episodes of one gradient")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    chosen = TrainingSettings(
        minutes=given.minutes,
        seed=given.seed,
        levels=tuple(given.levels),
        device=given.device,
        model=given.model,
        shape=TransformerShape(given.width, given.layers, given.heads),
        instances=given.instances,
        lanes=given.lanes,
        threads=given.threads,
        tasks_per_step=given.tasks,
        group=given.group,
        held_out=given.held_out,
        warm_steps=given.warm_steps,
        steps=given.steps,
        update=UpdateSettings(rate=given.rate, batch=given.batch),
    )
    try:
        result = asyncio.run(TrainingRun(chosen, lambda line: print(line, file=sys.stderr, flush=True)).run())
    except NoTimeLeft as error:
        sys.exit(f"train_grpo: {error}")
    result.write(given.out)
    print(
        f"held-out reward {result.before:.3f} -> {result.after:.3f} (p = {result.p_value:.2g}), "
        f"{result.rollouts} rollouts in {result.seconds:.0f} s; see {given.out}/curve.svg"
    )


if __name__ == "__main__":
    main()
