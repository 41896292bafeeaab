"""The commands that call tools: `statehold call`, `answer`, `tools`, and the completion of a shell.

A command takes as long as its imports, so the modules here import few of the standard library, neither typing nor pathlib.
"""
