"""Snapshots of a browser context: capture, storage and restore."""
