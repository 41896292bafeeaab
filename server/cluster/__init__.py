"""The nodes of a data folder or database: each answers for the sessions of others, by an HTTP exchange with the owner."""
