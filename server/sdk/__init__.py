"""Access to parts of the MCP SDK that have no public API."""
