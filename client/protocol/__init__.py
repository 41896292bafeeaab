"""Requests of the client: retries, acknowledgements and elicitation."""

__all__: list[str] = []
