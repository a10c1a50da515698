"""`perfguard github …` where it lacks something: one sentence each, before anything is asked or measured."""

from __future__ import annotations

import pytest

EVENT = '{"workflow_run": {"id": 1, "run_attempt": 1, "head_sha": "abc", "head_repository": null}}'


@pytest.mark.parametrize(
    ("arguments", "variables", "said"),
    [
        (("comment",), {}, "which run?"),
        (("comment", "--run-id", "1"), {}, "give both --run-id and --head-sha"),
        (("comment", "--run-id", "1", "--head-sha", "abc"), {}, "GITHUB_TOKEN is not set"),
        (("comment", "--run-id", "1", "--head-sha", "abc"), {"GITHUB_TOKEN": "x"}, "which repository?"),
        (
            ("comment", "--run-id", "1", "--head-sha", "abc", "--repository", "nonsense"),
            {"GITHUB_TOKEN": "x"},
            "'nonsense' is not OWNER/NAME",
        ),
        (("propose-baseline",), {"GITHUB_TOKEN": "x"}, "for which branch?"),
        (("gate",), {"ACTIONS_RUNTIME_TOKEN": "x"}, "ACTIONS_RUNTIME_TOKEN in the environment"),
        (("gate",), {"GITHUB_EVENT_PATH": "/nowhere"}, "is not an event of GitHub"),
        (("gate", "--against", "merge-base"), {"GITHUB_BASE_REF": "main"}, "fetch-depth: 0"),
        (("gate", "--against", "v9"), {}, "git knows no revision 'v9'"),
    ],
)
def test_what_is_missing_is_one_sentence(project, arguments, variables, said):
    clean = dict.fromkeys(("GITHUB_TOKEN", "GH_TOKEN", "GITHUB_REPOSITORY", "GITHUB_EVENT_PATH"), "")
    done = project.run("github", *arguments, **{**clean, "ACTIONS_RUNTIME_TOKEN": "", **variables})
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_the_event_names_the_run(project, tmp_path):
    path = tmp_path / "event.json"
    path.write_text(EVENT)
    variables = {"GITHUB_EVENT_PATH": str(path), "GITHUB_TOKEN": "x", "GITHUB_REPOSITORY": "octo/net"}
    done = project.run("github", "comment", **variables, GITHUB_API_URL="nowhere")
    assert done.returncode == 3
    assert "GitHub could not be reached" in done.stderr
