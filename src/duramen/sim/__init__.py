"""Duramen without a machine: the ports in memory, moved by hand or under a seed, and what runs on them for real.

The disk loses, tears and fails; the clock and the worker are moved by whoever runs the simulation.
"""
