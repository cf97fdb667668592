"""The docker engine: an instance is a container of Docker or podman on this machine."""
