"""Pages as text: against a golden file, byte by byte the same, small, and under a strict policy."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from perfguard.records.facts import recorded_text
from perfguard.records.verdict import Outcome
from perfguard.report.html.content import RawFile, RunContent
from perfguard.report.html.page import MARKER, asset, render_report
from tests.changed_values import replace
from tests.conftest import SOURCE
from tests.html_reports import a_finding, a_profile, recorded
from tests.recorded_runs import CASE_IDS, SLOWER

GOLDEN = Path(__file__).parent / "golden"
RENDER = """
import sys, tempfile
from pathlib import Path
from perfguard.report.html.page import render_report
from tests.html_reports import a_profile, recorded
sys.stdout.buffer.write(render_report([recorded(Path(sys.argv[1])), a_profile()], source="test").encode())
"""


class Words(HTMLParser):
    """The words of a page, a line for each piece of text, without style, script and data."""

    def __init__(self):
        super().__init__()
        self.lines, self._silent, self.attributes = [], 0, []

    def handle_starttag(self, tag, attrs):
        self._silent += tag in ("style", "script")
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag):
        self._silent -= tag in ("style", "script")

    def handle_data(self, data):
        text = " ".join(data.split())
        if text and not self._silent:
            self.lines.append(text)


def read(page):
    words = Words()
    words.feed(page)
    return words


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    return recorded(tmp_path_factory.mktemp("project"))


@pytest.fixture(scope="module")
def report(compared):
    return render_report([compared], source="test")


@pytest.mark.parametrize("name", ["paired", "rounds", "profile"])
def test_a_page_reads_as_its_golden_file(tmp_path, name):
    content = a_profile() if name == "profile" else recorded(tmp_path, name)
    text = "\n".join(read(render_report([content], source="test")).lines) + "\n"
    golden = GOLDEN / f"{name}.txt"
    if os.environ.get("PERFGUARD_UPDATE_GOLDEN"):
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


def test_the_same_run_gives_the_same_bytes_in_every_process(tmp_path):
    pages = {
        subprocess.run(
            [sys.executable, "-c", RENDER, str(tmp_path / seed)],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(SOURCE)},
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(pages) == 1


def test_a_page_is_small_beside_its_data(report):
    data = report.partition('id="data">')[2].partition("</script>")[0]
    assert len(report.encode()) - len(data.encode()) < 400_000


def test_a_page_of_hundreds_of_cases_stays_small_and_says_what_it_leaves_out(compared):
    (slower,) = [verdict for verdict in compared.result.gate.verdicts if verdict.case_id == SLOWER]
    calm = next(verdict for verdict in compared.result.gate.verdicts if verdict.outcome is Outcome.UNCHANGED)
    many = (*(replace(calm, case_id=f"kernel.made_up[number={index}]") for index in range(300)), slower)
    evidence = {verdict.case_id: compared.evidence[SLOWER] for verdict in many}
    gate = replace(compared.result.gate, verdicts=many)
    content = replace(compared, result=replace(compared.result, gate=gate), evidence=evidence, files=())
    page = render_report([content], source="test")
    assert len(page.encode()) < 1_000_000
    assert page.count('data-chart="pairs"') == 30
    assert page.index('data-chart="waterfall"') < page.index('data-filter="kernel.made_up[number=0] unchanged"')
    assert any("of 271 more the numbers are in the table" in line for line in read(page).lines)


def test_the_policy_allows_the_pages_own_style_and_script_and_nothing_else(report):
    policy = next(value for _, name, value in read(report).attributes if name == "content" and "default-src" in value)
    hashes = [
        "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for text in (asset("page.css"), asset("theme.js") + asset("page.js"))
    ]
    assert policy == (
        f"default-src 'none'; style-src '{hashes[0]}'; script-src '{hashes[1]}'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )


def test_a_page_has_no_style_attributes_no_handlers_and_only_links_within(report):
    for tag, name, value in read(report).attributes:
        assert name != "style"
        assert not name.startswith("on")
        assert name not in ("href", "src") or value.startswith("#"), tag


def test_a_page_names_nothing_on_a_network(report):
    assert not re.search(r"(?:https?|wss?):", re.sub(r'id="data">.*?</script>', "", report, flags=re.DOTALL))


def test_its_second_line_says_who_wrote_it(report):
    assert report.splitlines()[1] == f"{MARKER} source=test -->"


def test_a_page_leads_from_the_verdict_to_its_evidence_in_the_order_of_what_people_ask(report):
    lines = read(report).lines
    heads = ["regressed", "How big is it?", "Cases", "Is it real? Each block on its own", "Which ops?"]
    heads += ["Where in the step?", "Environment", "Raw data"]
    positions = [lines.index(head) for head in heads]
    assert positions == sorted(positions)


def test_every_case_has_its_place_and_what_needs_a_look_comes_first(report):
    lines = read(report).lines
    start = lines.index("Cases")
    assert {case_id for case_id in CASE_IDS if case_id in lines[start:]} == set(CASE_IDS)
    assert next(line for line in lines[start:] if line in CASE_IDS) == SLOWER


def test_the_gates_own_words_on_its_error_rates_stand_beside_its_verdict(compared):
    known = replace(compared, result=replace(compared.result, error_rate=recorded_text("the rate is known")))
    lines = read(render_report([known], source="test")).lines
    assert lines.index("the rate is known") < lines.index("How big is it?")


def test_advice_is_shown_with_its_trial(compared):
    advised = replace(compared, result=replace(compared.result, findings={SLOWER: (a_finding(),)}))
    lines = read(render_report([advised], source="test")).lines
    assert "torch.optim.Adam(…, fused=True)" in lines
    assert "perfguard compare" in lines


def test_a_run_of_which_nothing_is_known_still_has_a_page():
    lines = read(render_report([RunContent(run_id="empty", problems=("nothing could be read",))], source="test")).lines
    assert "nothing can be said of this run" in lines
    assert "nothing could be read" in lines


def test_large_and_damaged_raw_data_is_compressed_and_small_data_is_text(compared):
    files = (
        RawFile(name="small.json", size_bytes=2, content=b"{}"),
        RawFile(name="large.json", size_bytes=10**6, content=b"0" * 10**6),
        RawFile(name="broken.json", size_bytes=1, content=b"\xff"),
    )
    page = render_report([replace(compared, files=files)], source="test")
    assert page.count('"gzip":') == 2
    assert page.count('"text":') == 1
    assert len(page) < len(render_report([compared], source="test")) + 10_000
