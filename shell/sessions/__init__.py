"""`statehold sessions`: one file for each group of actions."""
