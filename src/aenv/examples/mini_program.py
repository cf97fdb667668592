"""The Mini Program IDE: a web app appears in a browser, and changes by chat.

    python -m aenv.examples.mini_program                  # a script builds; no model and no key are needed
    python -m aenv.examples.mini_program --model NAME     # the model at OPENAI_BASE_URL builds

It opens the page, and goes on until Ctrl-C. The project is saved, and is there again at the next start.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import webbrowser

from aenv import AEnvError
from aenv.web import view_server
from aenv.web.mini_program.ide_server import ModelChoice, building

WISH = "Make a to-do list"


def main() -> None:
    """Serve the IDE until it is ended."""
    parser = argparse.ArgumentParser(prog="python -m aenv.examples.mini_program")
    parser.add_argument("--project", default="demo", help="name of the project (default: %(default)s)")
    parser.add_argument("--model", help="model at OPENAI_BASE_URL, with the key OPENAI_API_KEY")
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0 picks a free one")
    parser.add_argument("--no-open", action="store_true", help="only print the address of the page")
    given = parser.parse_args()
    model = None
    if given.model:
        url = os.environ.get("OPENAI_BASE_URL")
        if not url:
            parser.error("--model needs OPENAI_BASE_URL, the address of the model's server")
        model = ModelChoice(given.model, url, os.environ.get("OPENAI_API_KEY"))

    def tell(url: str) -> None:
        print(url, flush=True)
        print("Ctrl-C ends it", file=sys.stderr)

    opened = building(given.project, model, port=given.port, first_wish=WISH)
    launch = None if given.no_open else webbrowser.open
    try:
        asyncio.run(view_server.serve(opened, tell, launch))
    except AEnvError as error:
        sys.exit(f"mini_program: {error.message}")


if __name__ == "__main__":
    main()
