"""Where sessions are stored."""
