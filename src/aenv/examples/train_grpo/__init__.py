"""GRPO on gsm-tools: a policy that learns to use a calculator from the rewards of real instances.

    python -m aenv.examples.train_grpo --minutes 10 --seed 0 --out DIR

Needs `pip install 'torch>=2.6' 'numpy>=1.26'`. The walk: `arena.py` keeps instances and plays episodes → a policy
(`small_policy.py`, or `smollm_policy.py`) speaks and hears → `policy_update.py` turns rewards into a step of it →
`training_report.py` writes what came of it. `training_run.py` is the loop. docs/training.md has the numbers.
"""
