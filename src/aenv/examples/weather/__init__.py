"""The weather demo: an environment of two tools and a reward, served and used on this machine.

    python -m aenv.examples.weather

The environment is `environment/`, a project as `aenv init` makes them; `aenv run` and `aenv push` take it so.
"""
