"""The `aenv` command: parse, call, print. No HTTP, and no logic of its own."""
