"""Where events come from: files that grow, remote machines, recordings.

Entered by the rest of `watch` and by readers of recordings.
"""
