"""Any MCP server as a service: stdio, HTTP+SSE and Streamable HTTP."""
