"""Changes of the tables from version to version, run by Alembic."""
