"""What nodes of a cluster say to each other: bytes <-> values."""
