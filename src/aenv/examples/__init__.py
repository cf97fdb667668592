"""Programs that show what aenv is for: `python -m aenv.examples.NAME`. They use public names alone."""
