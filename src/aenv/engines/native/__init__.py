"""The native engine: isolated instances, forked from a process that has everything loaded."""
