"""Load generators: open and closed loops, clients, percentiles."""
