"""The processes of `statehold`: their start, their signals and their end."""
