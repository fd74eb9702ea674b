"""`duramen queue`: queue spaces and their entries."""
