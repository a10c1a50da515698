"""Turns results into text, Markdown and pages.

Front ends and `integrations` may enter; the only room beside `tui` that makes English of facts.
"""
