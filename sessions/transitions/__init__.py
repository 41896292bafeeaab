"""The work behind the rows of lifecycle.py."""
