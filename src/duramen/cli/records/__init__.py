"""`duramen produce` and `duramen consume`: records as lines of text or JSON."""
