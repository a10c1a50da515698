"""The six screens, one module each, and what they share."""
