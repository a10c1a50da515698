"""Widgets that paint lines of spans; all of them render only what is on the screen."""
