"""Import paths that published code relies on; re-exports only."""
