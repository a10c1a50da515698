"""Runs, the values and effects of their cases, samples and fingerprints."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    _create_runs()
    op.create_table(
        "series",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("project", sa.Text, nullable=False),
        sa.Column("case_id", sa.Text, nullable=False),
        sa.Column("machine_id", sa.Text, nullable=False),
        sa.UniqueConstraint("project", "case_id", "machine_id", name="uq_series_project_case_id_machine_id"),
    )
    _create_of_case(
        "case_values",
        sa.Column("median_s", sa.Double, nullable=False),
        sa.Column("spread_ppm", sa.Integer),
        sa.Column("blocks", sa.SmallInteger, nullable=False),
        included=["median_s", "spread_ppm", "blocks"],
    )
    if op.get_context().dialect.name == "postgresql":
        op.create_index("ix_case_values_run_row", "case_values", ["run_row"], postgresql_using="brin")
    _create_of_case(
        "effects",
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("log_ratio", sa.Double),
        sa.Column("lower", sa.Double),
        sa.Column("upper", sa.Double),
    )
    _create_of_case("samples", sa.Column("content", sa.LargeBinary, nullable=False))
    op.create_index("ix_samples_run_row", "samples", ["run_row"])
    op.create_table(
        "fingerprints",
        sa.Column("machine_id", sa.Text, nullable=False),
        sa.Column("stack_id", sa.Text, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("machine_id", "stack_id", name="pk_fingerprints"),
    )


def _create_runs() -> None:
    op.create_table(
        "runs",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("project", sa.Text, nullable=False),
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("content_hash", sa.Text, nullable=False),
        sa.Column("corrects", sa.Integer, sa.ForeignKey("runs.id", name="fk_runs_corrects")),
        sa.Column("recorded_at", sa.Double, nullable=False),
        sa.Column("started_at", sa.Double, nullable=False),
        sa.Column("mode", sa.Text, nullable=False),
        sa.Column("suite", sa.Text, nullable=False),
        sa.Column("machine_id", sa.Text),
        sa.Column("outcome", sa.Text),
        sa.Column("exit_code", sa.Integer),
        sa.Column("source_id", sa.Text),
        sa.Column("stack_id", sa.Text),
        sa.Column("commit", sa.Text),
        sa.Column("is_paired", sa.Integer, nullable=False),
        sa.Column("baseline_source_id", sa.Text),
        sa.Column("baseline_stack_id", sa.Text),
        sa.Column("baseline_commit", sa.Text),
        sa.Column("events_bytes", sa.BigInteger, nullable=False),
        sa.Column("cases", sa.Integer, nullable=False),
        sa.Column("problem", sa.Text),
        sa.UniqueConstraint("content_hash", name="uq_runs_content_hash"),
    )
    op.create_index("ix_runs_project_run_id", "runs", ["project", "run_id"])
    op.create_index("ix_runs_project_started_at", "runs", ["project", "started_at"])
    op.create_index("ix_runs_corrects", "runs", ["corrects"])


def _create_of_case(name: str, *columns: sa.Column[object], included: list[str] | None = None) -> None:
    op.create_table(
        name,
        sa.Column("series_id", sa.Integer, sa.ForeignKey("series.id", name=f"fk_{name}_series_id"), nullable=False),
        sa.Column("run_row", sa.Integer, sa.ForeignKey("runs.id", name=f"fk_{name}_run_row"), nullable=False),
        *columns,
        sa.PrimaryKeyConstraint("series_id", "run_row", name=f"pk_{name}", postgresql_include=included or []),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    """Drop the tables."""
    for name in ("fingerprints", "samples", "effects", "case_values", "series", "runs"):
        op.drop_table(name)
