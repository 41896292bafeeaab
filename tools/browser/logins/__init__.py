"""Logins that are lent to one session at a time."""
