"""`duramen spark`: Duramen on Spark clusters."""
