"""The parts about the browser."""
