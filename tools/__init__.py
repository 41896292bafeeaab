"""The tools that callers invoke: Statehold's own, and those of the services that open connections."""
