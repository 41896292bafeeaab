"""LangChain, pytest, MCPStore and agentscope on top of the client."""

__all__: list[str] = []
