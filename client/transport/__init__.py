"""The transports of the client: HTTP, stdio and embedded."""

__all__: list[str] = []
