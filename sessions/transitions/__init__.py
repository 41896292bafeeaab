"""The work behind the transitions of lifecycle.py."""
