"""The audit log: who asked for what, what was decided, and how it ended."""
