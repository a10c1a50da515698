"""Files of other tools: readers and writers, one format a module.

Entered by `perfguard import`, `export` and `profile`.
"""
