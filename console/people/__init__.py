"""Logins with accounts, the work of operators, and shares with people."""
