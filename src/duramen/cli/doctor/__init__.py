"""`duramen doctor`."""
