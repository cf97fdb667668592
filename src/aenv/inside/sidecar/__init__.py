"""A built-in environment: what the sidecar of an instance serves to the first."""
