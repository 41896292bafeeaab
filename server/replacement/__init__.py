"""The replacement of a running HTTP server by a new process, with its listening socket and its sessions."""
