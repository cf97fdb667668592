"""Frameworks that train and run agents: one module each, which imports its framework (docs/integrations.md)."""
