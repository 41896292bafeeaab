"""The transports to an upstream: stdio, HTTP+SSE and Streamable HTTP."""
