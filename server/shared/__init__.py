"""One background server per data folder, shared by the stdio clients of a machine, and the pipe from a client to it."""
