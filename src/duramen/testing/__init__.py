"""Doubles of the ports for tests: a disk in memory that can lose, tear and fail; a clock and a worker moved by hand."""
