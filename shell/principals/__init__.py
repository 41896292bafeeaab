"""Commands about the callers of a server."""
