"""The secrets of a session: those configured by name, and the texts typed into secret fields."""
