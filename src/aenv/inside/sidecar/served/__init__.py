"""What the sidecar serves: commands and files, a terminal, and what a verdict needs."""
