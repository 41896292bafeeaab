"""The MCP face of Statehold and the process around it."""
