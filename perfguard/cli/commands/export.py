"""`perfguard export`."""

from __future__ import annotations

from typing import Any

import click

from perfguard.cli.options import load

FORMATS = ("pyperf", "asv", "pytorch", "bencher", "github-action", "junit", "openmetrics", "csv", "parquet")
"""As `perfguard.integrations.formats.exporting.WRITERS` names them, which is not imported for help."""

_EPILOG = """\b
pyperf         raw times of one arm, for `python -m pyperf stats` and `compare_to`
asv            results file, version 2, of one arm at a commit
pytorch        records of PyTorch's benchmark database, version 3, of one arm
bencher        Bencher Metric Format, of one arm
github-action  customSmallerIsBetter of github-action-benchmark, of one arm
junit          verdicts as tests, for GitLab, Jenkins and Azure
openmetrics    times, effects and verdicts, for node_exporter or a Pushgateway
csv, parquet   verdicts as a table; with --samples, every sample of both arms
For instance: perfguard export --format junit -o perfguard.xml
"""


@click.command("export", epilog=_EPILOG)
@click.argument("run", required=False)
@click.option("--format", "name", type=click.Choice(FORMATS), required=True, help="Format to write.")
@click.option("-o", "--output", default="-", metavar="FILE", help="File to write; default: stdout.")
@click.option(
    "--arm",
    type=click.Choice(["candidate", "baseline"]),
    default="candidate",
    show_default=True,
    help="Which arm, for formats that hold one.",
)
@click.option("--samples", is_flag=True, help="Raw samples instead of verdicts: csv and parquet.")
@click.option("--commit", metavar="SHA", help="Commit of the arm, if it was not measured at one: asv.")
def command(**options: Any) -> None:
    """Write a recorded RUN in the format of another tool; default: the latest run.

    RUN is an id below .perfguard/runs or a path. The verdict is that of `perfguard show`. The exit code says only
    whether the file was written. docs/interchange.md lists what each format loses.
    """
    from perfguard.cli.interchange import write_export
    from perfguard.gate.show import find_run
    from perfguard.integrations.formats.exporting import export

    loaded = load(options, keys=())
    content = export(
        loaded,
        find_run(loaded, options["run"]),
        options["name"],
        arm=options["arm"],
        samples=options["samples"],
        commit=options["commit"],
    )
    write_export(content, options["output"])
