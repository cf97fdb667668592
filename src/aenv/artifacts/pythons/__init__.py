"""Pythons: which one an environment asks for, where this host has it, and a runtime that works with it."""
