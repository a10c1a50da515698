"""Child processes: launching, pinning, talking over pipes, ending. Entered by the rest of `runner` only."""
