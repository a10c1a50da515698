"""What the documents say of the program, checked against the program."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import perfguard
from perfguard.config import Config
from perfguard.errors import ExitCode
from perfguard.records.events import EVENT_NAMES

REPOSITORY = Path(perfguard.__file__).parent.parent


def text_of(name: str) -> str:
    path = REPOSITORY / name
    if not path.is_file():
        pytest.skip("the documents are not beside an installed package")
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("setting", Config.__struct_fields__)
def test_every_setting_is_documented_with_its_default(setting: str) -> None:
    row = next(line for line in text_of("docs/configuration.md").splitlines() if line.startswith(f"| `{setting}` |"))
    default = getattr(Config(), setting)
    default = getattr(default, "value", default)
    if default not in (None, {}, ()):
        shown = f"[{', '.join(default)}]" if isinstance(default, tuple) else str(default)
        shown = shown.lower() if isinstance(default, bool) else shown  # as TOML writes it
        assert f"`{shown}`" in row


def test_the_reference_of_commands_is_current() -> None:
    # In a process of its own: click keeps a command's help option from its first context, which a test may have made.
    write = "import sys; from tests import documented_commands; sys.stdout.write(documented_commands.document())"
    written = subprocess.run([sys.executable, "-c", write], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert text_of("docs/cli.md") == written.stdout


def test_the_readme_is_read_in_a_minute() -> None:
    assert len(text_of("README.md").splitlines()) < 150


@pytest.mark.parametrize("name", sorted(path.name for path in (REPOSITORY / "docs").glob("*.md")))
def test_every_document_is_reached_from_the_readme(name: str) -> None:
    assert f"docs/{name}" in text_of("README.md") or f"({name}" in "".join(
        path.read_text(encoding="utf-8") for path in (REPOSITORY / "docs").glob("*.md")
    )


@pytest.mark.parametrize("code", list(ExitCode))
def test_every_exit_code_is_in_the_readme(code: ExitCode) -> None:
    assert re.search(rf"^\| {int(code)} \|", text_of("README.md"), re.MULTILINE)


@pytest.mark.parametrize("event", EVENT_NAMES)
def test_every_event_is_documented(event: str) -> None:
    assert f"| `{event}` |" in text_of("docs/run-folder.md")


def test_every_package_is_in_the_architecture() -> None:
    architecture = text_of("docs/architecture.md")
    for package in (REPOSITORY / "perfguard").iterdir():
        if (package / "__init__.py").is_file():
            assert re.search(rf"\b{package.name}/", architecture), package.name


def test_links_between_the_documents_lead_somewhere() -> None:
    text_of("README.md")
    for document in (*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")):
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (document.parent / target).exists(), f"{document.name}: {target}"
