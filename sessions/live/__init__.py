"""The open sessions of this node: connections, snapshots, budgets and deadlines."""
