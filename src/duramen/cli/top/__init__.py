"""`duramen top`."""
