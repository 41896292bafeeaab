"""Measurements of the cost of Statehold, with real programs; docs/reference/benchmarks.md has the results."""
