"""Synthesis: new tasks for an environment, from templates, mutations or a model, checked before they are kept.

from aenv.rollouts.synthesis import SynthesisOptions, from_templates, synthesize
"""

from __future__ import annotations

from .synthesizer import Solver, SynthesisOptions, from_model, from_mutations, from_templates, synthesize
from .task_sets import KeptTask, TaskSet

__all__ = [
    "KeptTask",
    "Solver",
    "SynthesisOptions",
    "TaskSet",
    "from_model",
    "from_mutations",
    "from_templates",
    "synthesize",
]
