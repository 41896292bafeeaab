"""Who calls: tokens, principals, and the answer to a wrong token."""
