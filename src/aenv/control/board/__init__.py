"""What the processes of one gateway know together."""
