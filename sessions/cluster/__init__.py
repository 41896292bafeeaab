"""Nodes on several machines: leases, their observation, and the choice of a node for a session."""
