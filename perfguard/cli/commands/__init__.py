"""One module for commands of a kind. Loaded lazily by name."""
