"""Tool calls: routing, deadlines and idempotency."""
