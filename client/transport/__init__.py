"""The transports of the client: HTTP, stdio and embedded."""
