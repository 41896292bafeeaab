"""Other gateways in front of the same counter: how each is installed and started, and their comparison."""
