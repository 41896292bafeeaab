"""The rows that say who may do what, and those of the audit log."""
