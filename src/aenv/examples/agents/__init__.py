"""Agents that use agents: three programs, each with one command, offline, with a model that is a script."""
