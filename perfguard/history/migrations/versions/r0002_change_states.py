"""What people have said of changes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "change_states",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column(
            "series_id", sa.Integer, sa.ForeignKey("series.id", name="fk_change_states_series_id"), nullable=False
        ),
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("author", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("stated_at", sa.Double, nullable=False),
    )
    op.create_index("ix_change_states_series_id", "change_states", ["series_id"])


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("change_states")
