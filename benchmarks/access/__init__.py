"""What the checks of callers cost, and whether the time of an answer tells foreign sessions from unknown ones."""
