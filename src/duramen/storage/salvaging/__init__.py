"""Reading what is left of a data directory that may be damaged, and writing a new one from it. Blocking."""
