"""`duramen log`: the files of a data directory, without a node. A module a command, imported when it is called."""
