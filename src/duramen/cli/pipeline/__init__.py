"""`duramen pipeline`: a module for each of its commands."""
