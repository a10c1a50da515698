"""The gate against a stored baseline, and how baselines are recorded and compared.

Entered by the rest of `gate` and by `perfguard baseline`.
"""
