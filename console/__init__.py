"""The web console: who is logged in, and the JSON API under /api/v1."""
