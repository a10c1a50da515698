"""Files of other tools: readers and writers, one module for formats of a kind.

Entered by `perfguard import`, `export` and `profile`.
"""
