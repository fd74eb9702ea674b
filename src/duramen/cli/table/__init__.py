"""`duramen table`: streams kept as tables of a lakehouse."""
