"""Statehold's own tools, a file per toolset."""
