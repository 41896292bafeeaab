"""The filtering proxy: incoming requests, the policy, connections to sites, and limits."""
