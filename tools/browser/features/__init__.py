"""Recordings, traces, videos and mocked requests of a session."""
