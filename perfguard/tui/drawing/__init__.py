"""Pure drawing: values to text with styles. Entered by the rest of `tui`."""
