"""Pictures made of text: pure functions from data to lines, without textual. Colours are roles."""
