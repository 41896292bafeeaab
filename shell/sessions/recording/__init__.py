"""`statehold sessions test`: the steps of a recorded session become a test for pytest."""
