"""What stands beside the tables: pure functions from a run's view to lines of a given width. No textual."""
