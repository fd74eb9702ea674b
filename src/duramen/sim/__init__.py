"""Duramen without a machine: the ports in memory, driven by hand or by a seed, and the real code on them.

The disk loses, tears and fails; whoever runs the simulation advances the clock and the worker.
"""
