"""What Alembic runs: migrations on the connection that it was given."""

from __future__ import annotations

from alembic import context

from perfguard.history.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
