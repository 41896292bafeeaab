"""Child processes: starting them, finding them, and ending them with us."""
