"""The project that a sidecar serves to the main part of its instance."""
