from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from perfguard.worker.profiling.library_logs import captured_output


def say(text):
    os.write(1, text.encode())


def open_descriptors():
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def test_what_is_printed_goes_to_the_file_and_afterwards_to_the_old_place(capfd, tmp_path):
    say("before ")
    with captured_output(tmp_path / "log"):
        say("inside")
    say("after")
    assert (tmp_path / "log").read_text() == "inside"
    assert capfd.readouterr().out == "before after"


def test_what_c_still_holds_ends_up_where_it_was_printed(capfd, tmp_path):
    c = ctypes.CDLL(None)
    c.printf(b"early ")
    with captured_output(tmp_path / "log"):
        c.printf(b"from C")
    c.printf(b"late")
    c.fflush(None)
    assert (tmp_path / "log").read_text() == "from C"
    assert capfd.readouterr().out == "early late"


def test_programs_that_are_started_meanwhile_print_to_the_file(capfd, tmp_path):
    with captured_output(tmp_path / "log"):
        subprocess.run(["/bin/echo", "a child"], check=True)
    assert (tmp_path / "log").read_text() == "a child\n"


def test_the_innermost_file_takes_it_all(capfd, tmp_path):
    with captured_output(tmp_path / "outer"):
        say("1")
        with captured_output(tmp_path / "inner"):
            say("2")
        say("3")
    assert (tmp_path / "outer").read_text() == "13"
    assert (tmp_path / "inner").read_text() == "2"
    assert capfd.readouterr().out == ""


def test_an_error_inside_leaves_nothing_redirected_and_nothing_open(capfd, tmp_path):
    before = open_descriptors()

    def interrupted():
        with captured_output(tmp_path / "log"):
            say("lost?")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    say("back")
    assert (tmp_path / "log").read_text() == "lost?"
    assert capfd.readouterr().out == "back"
    assert open_descriptors() == before


def test_a_file_that_cannot_be_written_leaves_everything_as_it_was(capfd, tmp_path):
    before = open_descriptors()
    with pytest.raises(OSError, match="absent"), captured_output(tmp_path / "absent" / "log"):
        pytest.fail("nothing to capture into")
    say("still here")
    assert capfd.readouterr().out == "still here"
    assert open_descriptors() == before


def test_a_stdout_that_the_program_has_closed_does_no_harm(capfd, tmp_path, monkeypatch):
    closed = (tmp_path / "closed").open("w")
    closed.close()
    monkeypatch.setattr(sys, "stdout", closed)
    with captured_output(tmp_path / "log"):
        say("inside")
    assert (tmp_path / "log").read_text() == "inside"
