"""Streams into tables: which streams are declared, what of them comes next, the tasks, the rounds and the job."""
