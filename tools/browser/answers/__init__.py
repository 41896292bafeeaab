"""The texts of results: sections, snapshots and outlines, events, and code."""
