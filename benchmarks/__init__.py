"""Measurements of the cost of Statehold, with real programs: `uv run python -m benchmarks`; see docs/benchmarks.md."""
