"""`perfguard import`."""

from __future__ import annotations

from typing import Any

import click

from perfguard.cli.options import load

FORMATS = ("auto", "pyperf", "asv", "pytest-benchmark", "google-benchmark", "pytorch", "bencher")
"""As `perfguard.integrations.formats.importing.READERS` names them, which is not imported for help."""

_EPILOG = """\b
pyperf            what pyperf's runners write with -o
asv               a results file of asv, version 2
pytest-benchmark  what --benchmark-json or --benchmark-save writes
google-benchmark  what --benchmark_out writes
pytorch           records of PyTorch's benchmark database, version 3
bencher           Bencher Metric Format
For instance: perfguard import before.json after.json
"""


@click.command("import", epilog=_EPILOG)
@click.argument("files", nargs=-1, required=True, metavar="FILE [OTHER]")
@click.option(
    "--format",
    "name",
    type=click.Choice(FORMATS),
    default="auto",
    show_default=True,
    help="Format of the files; auto detects it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print everything that was read as JSON.")
def command(**options: Any) -> None:
    """Show what a FILE of another benchmark tool holds, what it lacks, and whether a gate could use it.

    With a second file, compare what both have in common, if both hold raw samples of two processes or more. That is
    no gate and never fails: the exit code says only whether the files could be read. `-` reads stdin.
    """
    from perfguard.cli.interchange import show_import
    from perfguard.errors import UsageError
    from perfguard.integrations.formats.importing import import_files

    if len(options["files"]) > 2:
        raise UsageError(f"{len(options['files'])} files were named; one is shown, two are compared")
    report = import_files(load(options, keys=()), options["files"], name=options["name"])
    show_import(report, as_json=options["as_json"])
