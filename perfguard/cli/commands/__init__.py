"""One module a command. Loaded lazily by name."""
