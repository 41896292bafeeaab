"""The browser of one session while it is open: its tabs, its files and its calls."""
