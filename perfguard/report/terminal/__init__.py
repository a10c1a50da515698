"""Results on a terminal. Entered by `cli`, and by other outputs that share its words."""
