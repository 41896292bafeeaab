"""The session layer for a sessionless MCP."""

from pathlib import Path

# In a checkout this file is in .namespace/ and the packages are the repository's top-level folders.
_root = Path(__file__).resolve().parents[1]
if _root.name == ".namespace":
    __path__.insert(0, str(_root.parent))
