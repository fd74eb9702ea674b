"""Messages between nodes of a cluster: bytes <-> values."""
