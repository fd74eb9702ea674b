"""A machine under a seed: disk, jobs, time, faults."""
