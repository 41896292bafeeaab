"""The control socket: requests of this user's commands to a running process."""
