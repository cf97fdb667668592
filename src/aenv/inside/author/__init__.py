"""What environment authors import: decorators, injection, content. Pure: no server, no I/O.

from aenv import register_tool

@register_tool
def search_code(query: str, path: str = ".") -> dict:
    ...
"""
