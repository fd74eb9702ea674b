"""`duramen stream`: streams, their partitions and configs."""
