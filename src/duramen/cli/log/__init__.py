"""`duramen log`: the files of a data directory, without a node. One module per command, imported when called."""
