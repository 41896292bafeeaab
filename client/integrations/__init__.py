"""LangChain, pytest and MCPStore on top of the client."""

__all__: list[str] = []
