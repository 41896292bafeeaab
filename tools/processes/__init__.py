"""Child processes: start them, find them, and end them together with this process."""
