"""One agent in each framework, on the same task: `python -m aenv.examples.agents.langchain`.

The model is the one at OPENAI_BASE_URL; without it, a script that solves this task, so that each runs offline.
Beside them, agents that use agents: `hierarchical`, `debate` and `adversarial`, with a model that is a script.
"""

from __future__ import annotations

NAME = "gsm-tools@1.0.0"
TASK = {"GSM_TASK_ID": "1-0"}
PROMPT = "Read the problem, work it out with the calculator, and submit the answer."
