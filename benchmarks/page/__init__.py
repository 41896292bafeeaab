"""docs/reference/benchmarks.md: its figures and charts, made from the runs in benchmarks/runs."""
