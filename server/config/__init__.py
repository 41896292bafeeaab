"""The settings: their model, their sources and the messages about wrong ones."""
