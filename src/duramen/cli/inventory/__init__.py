"""`duramen tenant`, `duramen namespace` and `duramen topic`: the inventory through a node's HTTP door."""
