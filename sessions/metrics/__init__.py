"""The instruments of a process and of its sessions."""
