"""LangChain, pytest and MCPStore on top of the client."""
