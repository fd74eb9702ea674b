"""The targets' measurements: each module takes a field of systems and returns outcomes."""
