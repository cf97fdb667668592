"""Ready agents: programs and packages of others that play tasks, each with a module of its own.

They run beside the instance: its tools reach them by MCP (`tool_endpoint.py`), their model by the capture.
"""
