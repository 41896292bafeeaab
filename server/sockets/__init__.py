"""The local socket of a process, for the other processes of its user, and the sockets of systemd."""
