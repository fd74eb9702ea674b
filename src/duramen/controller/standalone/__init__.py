"""A standalone node: it decides by itself, and its own log commits."""
