"""What tools ask of a session, one file per group of tools."""
