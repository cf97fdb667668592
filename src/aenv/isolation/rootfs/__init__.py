"""Root file systems: images and Dockerfiles become folders that instances see as `/`."""
