"""`statehold audit`: the audit log of a store."""
