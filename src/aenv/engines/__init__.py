"""Engines make instances. `base` is the contract; each other module is one way to keep it."""
