"""`python -m tests.fuzz KIND`: fresh seeds for so long, or one seed again."""

from __future__ import annotations

import argparse
import secrets
import sys

from tests.fuzz.playing import PLAYS, Found, fuzzing, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("kind", choices=[*PLAYS])
    parser.add_argument("--seed", type=int, help="play this one alone")
    parser.add_argument("--first", type=int, default=None, help="the first fresh seed (default: a random one)")
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    try:
        with fuzzing() as fuzz:
            if options.seed is not None:
                fuzz.play(options.kind, options.seed)
                print(f"{options.kind} {options.seed}: nothing found")
                return 0
            first = secrets.randbelow(1 << 32) if options.first is None else options.first
            print(f"{options.kind}: {run(fuzz, options.kind, first, options.seconds)} seeds from {first}")
            return 0
    except Found as found:
        print(found, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
