"""Finds the commit that made a case slower. Entered by `perfguard bisect`."""
