"""What Statehold costs, measured against real programs: `uv run python -m benchmarks`; see docs/benchmarks.md."""
