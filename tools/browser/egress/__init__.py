"""The machinery of the filtering proxy: requests in, decisions, connections out, and what they may carry."""
