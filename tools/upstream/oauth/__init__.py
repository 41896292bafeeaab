"""Logins of upstreams that ask for OAuth."""
