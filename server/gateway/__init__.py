"""The gateway: sessions, services and own tools behind one tool list."""
