"""Requests between nodes: a table of methods, one encoding, one retry rule, one scatter-gather. Pure."""
