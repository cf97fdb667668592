"""Trajectories in the formats of others: written, and read again."""
