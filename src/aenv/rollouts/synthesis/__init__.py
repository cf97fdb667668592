"""Synthesis: new tasks for an environment, from templates, mutations or a model, checked before they are kept.

from aenv.rollouts.synthesis import SynthesisOptions, from_templates, synthesize
"""

from __future__ import annotations

from ..runner import place_of
from .synthesizer import (
    Solver,
    SourceRecipe,
    SynthesisOptions,
    from_model,
    from_mutations,
    from_templates,
    synthesize,
)
from .task_sets import TaskSet

__all__ = [
    "Solver",
    "SourceRecipe",
    "SynthesisOptions",
    "TaskSet",
    "from_model",
    "from_mutations",
    "from_templates",
    "place_of",
    "synthesize",
]
