"""What a screen shows of a run, folded from its events. Entered by the TUI and `perfguard watch`."""
