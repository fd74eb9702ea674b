"""`duramen pipeline`: one module per command."""
