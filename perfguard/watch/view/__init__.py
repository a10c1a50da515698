"""What a screen shows of a run, computed from its data. Entered by the TUI and `perfguard watch`."""
