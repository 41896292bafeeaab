"""The logins that sessions use and nobody sees: at services, at websites, and keys."""
