"""Sealing at rest: content of callers is encrypted with a key of each principal before it is written."""
