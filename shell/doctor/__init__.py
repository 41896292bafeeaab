"""`statehold doctor`: checks of the system, the data folder and the browser."""
