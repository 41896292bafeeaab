"""The live picture of a session's browser: pages are captured while somebody watches them."""
