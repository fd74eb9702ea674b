"""`duramen cluster`: commands about the nodes of a cluster. One module per command, imported when called."""
