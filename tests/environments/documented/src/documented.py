"""The tools that the documents call without defining them."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from aenv import register_tool


@register_tool
def execute_command(command: str, timeout: float = 60) -> dict[str, Any]:
    """Run a shell command."""
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=timeout)
    return {"output": [done.stdout, done.returncode == 0], "returncode": done.returncode}


@register_tool
def python(code: str) -> str:
    """Run Python code."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout


@register_tool
def write_file(path: str, content: str) -> str:
    """Pretend to write a file."""
    return f"{len(content)} characters for {path}"


@register_tool
def chat(message: str) -> str:
    """Answer a message."""
    return f"You said: {message}"


@register_tool
def analyze(data: str) -> dict[str, int]:
    """Measure a text."""
    return {"length": len(data)}


@register_tool
def analyze_market() -> str:
    """Say how the market is."""
    return "up"


@register_tool
def search_code(query: str, path: str = ".") -> dict[str, list[str]]:
    """Search for code patterns in files."""
    return {"matches": [f"{path}: {query}"]}
