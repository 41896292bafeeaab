"""`statehold top`: the sessions and services of a data folder, live in the terminal."""
