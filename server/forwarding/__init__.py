"""Requests passed on to the node that owns their session: addresses, messages, connections, and the listener of a node."""
