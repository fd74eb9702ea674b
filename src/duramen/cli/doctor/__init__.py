"""`duramen doctor`: checks of the machine, of the data directory and of ports."""
