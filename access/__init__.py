"""Authentication of callers: tokens, principals, and the answer to a wrong token."""
