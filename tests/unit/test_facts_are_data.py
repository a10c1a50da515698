"""Codes and values carry what perfguard says; English is made in the catalogue and read by nobody but people."""

from __future__ import annotations

import ast
import re
from collections import Counter

import pytest

from perfguard.profile.advice.advise import RULES
from perfguard.records.facts import Fact
from perfguard.records.steps.findings import PREFIX
from perfguard.report.messages.catalog import describe, messages
from perfguard.report.messages.computed import COMPUTED
from perfguard.report.messages.message import sections
from perfguard.report.messages.template import placeholders
from tests.documented_codes import DOCUMENT, WORDS, document, glossary
from tests.made_facts import SUBJECT, codes_of_changes, made_facts, modules

SHOWING = ("report/", "tui/", "cli/")
"""Rooms that are all about what people read."""
PROSE = frozenset({"reason", "reasons", "note", "notes", "sentence", "headline", "blame", "why", "observed"})
"""Attributes that say something to people."""
QUOTED = frozenset({"text", "problem", "message", "detail"})
"""Attributes that hold names, logs and output of other programs, too; of these only words in English count."""
TEXT_METHODS = frozenset(
    {
        "startswith", "endswith", "removeprefix", "removesuffix", "split", "rsplit", "partition", "rpartition",
        "splitlines", "find", "index", "replace",
    }
)  # fmt: skip
PATTERNS = frozenset({"match", "search", "fullmatch", "findall", "finditer", "sub"})
KEYED = frozenset({"setdefault", "get", "add", "pop"})
ENGLISH = re.compile(r"[A-Za-z]{2,}[,:;]? [a-z]|^[a-z]+: ")
CODE = re.compile(r"[a-z_]+\.[a-z0-9_]+")


def prose(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in PROSE


def quoted(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in QUOTED


def english(*nodes: ast.expr) -> bool:
    texts = (part for node in nodes for part in ast.walk(node) if isinstance(part, ast.Constant))
    return any(isinstance(text.value, str) and ENGLISH.search(text.value) for text in texts)


def sorts_by_prose(call: ast.Call) -> bool:
    keys = [keyword.value for keyword in call.keywords if keyword.arg == "key"]
    return any(isinstance(part, ast.expr) and prose(part) for key in keys for part in ast.walk(key))


def compares_prose(node: ast.AST) -> bool:
    if not isinstance(node, ast.Compare) or all(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops):
        return False
    sides = (node.left, *node.comparators)
    return any(map(prose, sides)) or (any(map(quoted, sides)) and english(*sides))


def reads_prose(node: ast.AST) -> bool:
    """Whether a call looks into a text, or sorts or groups by one."""
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute):
        value, method = node.func.value, node.func.attr
        if method in TEXT_METHODS and (prose(value) or (quoted(value) and english(*node.args))):
            return True
        if method in PATTERNS | KEYED and any(map(prose, node.args)):
            return True
    return sorts_by_prose(node)


def keys_by_prose(node: ast.AST) -> bool:
    match node:
        case ast.DictComp(key=key) | ast.SetComp(elt=key) | ast.Subscript(slice=key):
            return prose(key)
        case ast.Dict(keys=keys):
            return any(key is not None and prose(key) for key in keys)
    return False


def depends_on_prose(node: ast.AST) -> bool:
    return compares_prose(node) or reads_prose(node) or keys_by_prose(node)


def test_nothing_but_what_is_shown_depends_on_prose():
    found = {
        (name, ast.unparse(node))
        for name, module in modules()
        if not name.startswith(SHOWING)
        for node in ast.walk(module)
        if depends_on_prose(node)
    }
    assert found == set()


@pytest.mark.parametrize(
    "source",
    [
        "verdict.reason == 'slower'",
        "'expired' in state.reason",
        "text not in self.notes",
        "state.reason.removeprefix('expired: ')",
        "event.text.startswith('no canary was timed')",
        "'ran out of time' in row.problem",
        "re.match('[a-z]+', finding.sentence)",
        "sorted(found, key=lambda entry: (entry.case, entry.reason))",
        "found.sort(key=lambda entry: entry.headline)",
        "groups.setdefault(series.reason, [])",
        "{entry.reason for entry in found}",
        "{entry.note: entry for entry in found}",
        "counts[finding.sentence]",
    ],
)
def test_the_walk_finds_what_depends_on_prose(source):
    assert any(map(depends_on_prose, ast.walk(ast.parse(source))))


@pytest.mark.parametrize(
    "source",
    [
        "verdict.reason is None",
        "verdict.outcome == 'slower'",
        "message.text.startswith('MKL_VERBOSE')",
        "was.problem == now.problem",
        "sorted(found, key=lambda entry: entry.case)",
        "print(verdict.reason)",
    ],
)
def test_the_walk_leaves_names_and_the_output_of_programs_alone(source):
    assert not any(map(depends_on_prose, ast.walk(ast.parse(source))))


def test_every_code_that_is_made_is_a_constant_of_the_catalogue():
    assert [made.place for made in made_facts() if made.code not in messages()] == []


def test_every_code_of_the_catalogue_is_made_somewhere():
    advised = {f"{PREFIX}{code}" for rule in RULES for code in rule.codes}
    made = {made.code for made in made_facts()} | advised | codes_of_changes()
    assert sorted(messages().keys() - made) == []


def test_every_fact_gives_the_values_that_its_text_needs():
    missing = []
    for made in made_facts():
        message = messages().get(made.code)
        if message is None or made.is_open or callable(message.text):
            continue
        needed = {name for name, required in placeholders(message.text).items() if required}
        # The subject is often set later, by `replace`.
        missing += [(made.place, name) for name in sorted(needed - made.names - SUBJECT)]
    assert missing == []


def test_codes_are_a_room_and_what_was_found():
    assert [code for code in messages() if not CODE.fullmatch(code)] == []


def test_no_code_has_two_entries():
    entries = Counter(code for section in sections().values() for code in section)
    assert [code for code, count in entries.items() if count > 1] == []


def test_a_code_has_a_template_or_a_function():
    entries = {code: message for section in sections().values() for code, message in section.items()}
    assert sorted(code for code, message in entries.items() if not message.text) == sorted(COMPUTED)
    assert [code for code, message in entries.items() if not message.about] == []


@pytest.mark.parametrize("code", [code for code, message in messages().items() if not callable(message.text)])
def test_every_template_can_be_filled(code):
    values = dict.fromkeys(placeholders(messages()[code].text), 1)
    text = describe(Fact(code=code, values=values))
    assert text.strip()
    assert not any(mark in text for mark in ("{", "}", "[[", "]]"))


def test_the_documents_of_codes_and_words_are_current():
    if not DOCUMENT.parent.is_dir():
        pytest.skip("the documents are not beside an installed package")
    assert DOCUMENT.read_text(encoding="utf-8") == document(), "`make codes` writes it anew"
    words = WORDS.read_text(encoding="utf-8")
    assert words == glossary(words), "`make codes` writes it anew"


def test_the_document_of_codes_names_each_code_with_what_it_holds():
    rows = [line for line in document().splitlines() if line.startswith("| `")]
    assert len(rows) == len(messages())
    (row,) = [row for row in rows if row.startswith("| `case.timed_out` |")]
    assert row.split(" | ")[1:3] == ["info", "`timeout_s`"]
