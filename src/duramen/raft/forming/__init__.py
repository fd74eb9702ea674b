"""How nodes with empty directories form a cluster or join one. Pure."""
