"""Recorded runs in a database, and what they say over time: series, changes of level, comparisons of revisions.

SQLite needs no set-up; PostgreSQL is for teams. Both are reached by SQLAlchemy, which is imported when a database is
opened. `gate` and everything above it may enter.
"""
