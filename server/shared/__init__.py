"""The clients and commands of a machine at the server of their data folder, and the background server that they start."""
