"""The session layer for a sessionless MCP."""

import os

# In a checkout this file is in .namespace/ and the packages are the repository's top-level folders.
# os.path: pathlib would take a third of the time of a command.
_root = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
if os.path.basename(_root) == ".namespace":
    __path__.insert(0, os.path.dirname(_root))
