"""The MCP server of Statehold and the process that runs it."""
