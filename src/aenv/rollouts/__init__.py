"""Tasks of environments: validating that they can be trusted, and playing them with agents."""
