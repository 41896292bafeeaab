"""Unix sockets between the processes of one user."""
