"""The keeper: a small process that holds the child processes of a data folder while no server runs.

It imports the standard library alone.
"""
