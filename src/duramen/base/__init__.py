"""What every layer may use: ids, units, errors, settings, ports. Imports nothing of Duramen but itself."""
