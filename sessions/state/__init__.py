"""The JSON object of a session: patch, schema and merge."""
