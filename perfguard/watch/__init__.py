"""Follows a run from its events, on this machine or another one.

Front ends and `report` may enter; a reader never writes into the run's folder.
"""
