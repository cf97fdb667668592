"""A built-in environment: what the second part of an instance serves to the first."""
