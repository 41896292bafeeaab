"""Measurements of the cost of Statehold, with real programs; README.md explains them, docs/benchmarks.md has the results."""
