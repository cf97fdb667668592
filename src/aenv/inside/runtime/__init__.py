"""The program inside an instance: loads an environment and serves its tools, functions, rewards and health."""
