"""The Python client of Statehold. Empty for now: it comes with a later release."""
