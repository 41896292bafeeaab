"""Operator requests: this user's commands call tools in a running process, over its local socket."""
