"""`duramen stream`."""
