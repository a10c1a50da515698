"""Damaged files and messages for all that reads what others wrote: they are read, or refused in a sentence."""
