"""Programs to begin with: `python -m aenv.examples.NAME`. They use public names of aenv only."""
