"""`duramen cluster`: the nodes that work as one. A module a command, imported when it is called."""
