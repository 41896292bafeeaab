"""The settings that say who may do what."""
