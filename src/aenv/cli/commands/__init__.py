"""The commands of `aenv`: a module each, loaded when it is run."""
