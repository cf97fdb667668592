"""How a process is shut in, by plain system calls. Knows nothing of instances."""
