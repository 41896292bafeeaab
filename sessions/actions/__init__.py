"""The actions of tools on a session, one file per group of tools."""
