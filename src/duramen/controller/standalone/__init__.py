"""A node without a cluster: it decides by itself, and its own log commits."""
