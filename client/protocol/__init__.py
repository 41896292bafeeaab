"""Requests of the client: retries, acknowledgements and elicitation."""
