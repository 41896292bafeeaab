"""`statehold demo`: a tour over a real server."""
