"""Submissions, shards, hosts, canaries and schedules."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "fleet_submissions",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("project", sa.Text, nullable=False),
        sa.Column("engine", sa.Text, nullable=False),
        sa.Column("work", sa.Text, nullable=False),
        sa.Column("author", sa.Text, nullable=False),
        sa.Column("submitted_at", sa.Double, nullable=False),
    )
    op.create_index("ix_fleet_submissions_project", "fleet_submissions", ["project"])
    op.create_table(
        "fleet_shards",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column(
            "submission_id", sa.Integer, _key("fleet_shards_submission_id", "fleet_submissions.id"), nullable=False
        ),
        sa.Column("machine_class", sa.Text, nullable=False),
        sa.Column("patterns", sa.Text, nullable=False),
        sa.Column("lease_s", sa.Double, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("token", sa.Text),
        sa.Column("lease_until", sa.Double),
        sa.Column("host", sa.Text),
        sa.Column("changed_at", sa.Double, nullable=False),
        sa.Column("exit_code", sa.Integer),
        sa.Column("run_row", sa.Integer, _key("fleet_shards_run_row", "runs.id")),
        sa.Column("problem", sa.Text),
    )
    op.create_index("ix_fleet_shards_submission_id", "fleet_shards", ["submission_id"])
    op.create_index("ix_fleet_shards_state_lease_until", "fleet_shards", ["state", "lease_until"])
    op.create_table(
        "fleet_hosts",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("machine_id", sa.Text, nullable=False),
        sa.Column("classes", sa.Text, nullable=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("seen_at", sa.Double, nullable=False),
        sa.Column("fitness", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("fit_since", sa.Double, nullable=False),
    )
    op.create_table(
        "fleet_canaries",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("host", sa.Text, _key("fleet_canaries_host", "fleet_hosts.name"), nullable=False),
        sa.Column("measured_at", sa.Double, nullable=False),
        sa.Column("median_s", sa.Double, nullable=False),
    )
    op.create_index("ix_fleet_canaries_host_measured_at", "fleet_canaries", ["host", "measured_at"])
    op.create_table(
        "fleet_schedules",
        sa.Column("project", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("due_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("project", "name", name="pk_fleet_schedules"),
    )


def _key(name: str, target: str) -> sa.ForeignKey:
    return sa.ForeignKey(target, name=f"fk_{name}")


def downgrade() -> None:
    """Drop the tables."""
    for name in ("fleet_schedules", "fleet_canaries", "fleet_hosts", "fleet_shards", "fleet_submissions"):
        op.drop_table(name)
