"""Events of sessions for MCP clients (SEP-3415): the requests about them, and the deliveries by webhook."""
