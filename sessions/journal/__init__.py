"""The journal: its entries, without secrets, and its digest."""
