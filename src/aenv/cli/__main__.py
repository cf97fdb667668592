"""`python -m aenv.cli`: the same as `aenv`, wherever its script is."""

from .main import main

main()
