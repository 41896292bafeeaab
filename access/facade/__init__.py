"""The authorization server for clients to which the identity provider gives no client_id."""
