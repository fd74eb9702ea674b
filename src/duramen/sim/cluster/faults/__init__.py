"""What goes wrong in a simulated cluster."""
