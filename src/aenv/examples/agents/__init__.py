"""One agent in each framework, on the same task: `python -m aenv.examples.agents.langchain`.

The model is the one at OPENAI_BASE_URL; without it, a script that solves this task, so that each runs offline.
Beside them, agents that use agents: `hierarchical`, `debate` and `adversarial`, with a model that is a script.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager

NAME = "gsm-tools@1.0.0"
TASK = {"GSM_TASK_ID": "1-0"}
PROMPT = "Read the problem, work it out with the calculator, and submit the answer."


@contextmanager
def framework(name: str, *requirements: str) -> Iterator[None]:
    """Around the imports of a framework: where they fail, the program ends, and says what to install."""
    try:
        yield
    except ImportError as error:
        install = shlex.join(["pip", "install", *requirements])
        sys.exit(f"this example needs {name} ({error}); install it with: {install}")
