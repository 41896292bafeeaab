"""Events of sessions: who subscribed to them, and the deliveries that wait."""
