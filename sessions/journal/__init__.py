"""The journal: its entries, without secrets, and the digest of them."""
