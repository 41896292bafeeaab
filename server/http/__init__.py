"""MCP over HTTP: the application, its bounds and its fast path for tool calls."""
