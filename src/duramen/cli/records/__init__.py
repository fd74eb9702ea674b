"""`duramen produce` and `duramen consume`."""
