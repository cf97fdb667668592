"""Runs a block of the documents, as `tests/documents/run_block.py` does, with a model of chat completions."""

import runpy
import sys

from agents import set_default_openai_api, set_tracing_disabled

set_default_openai_api("chat_completions")
set_tracing_disabled(True)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
