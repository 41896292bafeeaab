"""The MCP SDK where it has no public way in."""
