"""What the tables show: rows and columns as pure functions of a run's view. No textual."""
