"""What this node holds open: sessions, connections, snapshots, budgets and deadlines."""
