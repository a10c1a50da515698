"""Fingerprints belong to a project: who adds runs to one neither reads nor sets those of another."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Give each project a copy of the fingerprints that its runs name."""
    _create_anew("project", "machine_id", "stack_id")
    op.execute(
        "INSERT INTO fingerprints (project, machine_id, stack_id, content) "
        "SELECT DISTINCT runs.project, known.machine_id, known.stack_id, known.content "
        "FROM fingerprints_before AS known JOIN runs ON runs.machine_id = known.machine_id "
        "AND known.stack_id IN (COALESCE(runs.stack_id, ''), COALESCE(runs.baseline_stack_id, ''))"
    )
    op.drop_table("fingerprints_before")


def downgrade() -> None:
    """Keep one of each."""
    _create_anew("machine_id", "stack_id")
    op.execute(
        "INSERT INTO fingerprints (machine_id, stack_id, content) "
        "SELECT machine_id, stack_id, MIN(content) FROM fingerprints_before GROUP BY machine_id, stack_id"
    )
    op.drop_table("fingerprints_before")


def _create_anew(*key: str) -> None:
    """An empty table with this key; what the old one held is in `fingerprints_before`."""
    op.execute("CREATE TABLE fingerprints_before AS SELECT * FROM fingerprints")
    op.drop_table("fingerprints")
    op.create_table(
        "fingerprints",
        *(sa.Column(name, sa.Text, nullable=False) for name in (*key, "content")),
        sa.PrimaryKeyConstraint(*key, name="pk_fingerprints"),
    )
