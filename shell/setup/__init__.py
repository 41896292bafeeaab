"""`statehold setup`: Statehold in the files of the clients of this machine."""
