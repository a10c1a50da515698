"""Questions that lie over a screen: help, what to start, where to write."""
