"""Files of other tools: readers and writers, one module for formats of a kind.

Entered by `perfguard import`, `export` and `profile`. Each `read` and `write` raises StoreError for a file that is
not of the format or holds what is no measurement, and where there is nothing to write.
"""
