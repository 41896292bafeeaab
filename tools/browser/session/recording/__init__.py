"""Recordings of a session: its steps, traces, videos and the log of its calls."""
