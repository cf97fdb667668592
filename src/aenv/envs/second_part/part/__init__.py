"""What the second part serves: commands and files, a terminal, and what a verdict needs."""
