"""The audit log of a gateway: what is recorded, and how it leaves the store."""
