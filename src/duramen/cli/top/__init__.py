"""`duramen top`: the rates of a node on the terminal."""
