"""A machine driven by a seed: disk, jobs, time, faults."""
