"""Services: environments that run for long, with replicas, storage and one URL."""
