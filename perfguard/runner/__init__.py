"""Starts workers and measures with them: sessions, arms, blocks.

`gate`, `profile` and front ends may enter; nothing here judges.
"""
