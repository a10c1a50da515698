from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from perfguard.errors import FingerprintError, UsageError
from perfguard.host.parsers.reading import MachineTree, extract, open_tree
from perfguard.host.probe import probe


def _machine(folder: Path, cpus: str = "0-1") -> Path:
    system = folder / "sys" / "devices" / "system" / "cpu"
    system.mkdir(parents=True)
    (system / "online").write_text(cpus)
    (folder / "proc").mkdir()
    (folder / "proc" / "version").write_text("Linux version 1.2.3-recorded (gcc)")
    return folder


@pytest.mark.parametrize("place", ["", "name", "external/host", "a/b/c"])
def test_the_machine_is_found_at_the_root_or_below_it(tmp_path: Path, place: str) -> None:
    _machine(tmp_path / place)
    (tmp_path / "README.md").write_text("x")
    assert probe(tmp_path).topology.threads_online == 2


def test_the_sys_folder_itself_may_be_given(tmp_path: Path) -> None:
    assert probe(_machine(tmp_path) / "sys").topology.threads_online == 2


def test_several_machines_are_named_and_not_chosen_from(tmp_path: Path) -> None:
    _machine(tmp_path / "desktop")
    _machine(tmp_path / "server")
    with pytest.raises(UsageError, match=r"several machines \(desktop, server\)"):
        probe(tmp_path)


def test_a_folder_without_a_machine_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(FingerprintError, match="neither proc nor sys"):
        probe(tmp_path)
    with pytest.raises(UsageError, match="no such folder"):
        probe(tmp_path / "absent")


@pytest.mark.parametrize("suffix", ["tar", "tar.gz", "tar.bz2", "tar.xz", "tgz"])
def test_a_tarball_or_a_folder_with_one_is_a_machine(tmp_path: Path, suffix: str) -> None:
    machine = _machine(tmp_path / "source")
    folder = tmp_path / "recorded"
    folder.mkdir()
    compression = suffix.rpartition(".")[2].replace("tgz", "gz").replace("tar", "")
    with tarfile.open(folder / f"m.{suffix}", f"w:{compression}") as tar:  # type: ignore[call-overload]
        tar.add(machine, arcname="m")
    assert probe(folder).state.kernel == "1.2.3-recorded"
    assert probe(folder / f"m.{suffix}").topology.threads_online == 2


@pytest.mark.parametrize("content", [b"", b"not a tarball", b"\x1f\x8b\x08" + b"\0" * 40])
def test_a_broken_tarball_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.tar.gz").write_bytes(content)
    with pytest.raises(FingerprintError, match=r"m\.tar\.gz"):
        probe(tmp_path)


def test_a_truncated_tarball_is_one_sentence(tmp_path: Path) -> None:
    machine = _machine(tmp_path / "source")
    (machine / "proc" / "big").write_bytes(os.urandom(200_000))
    with tarfile.open(tmp_path / "m.tar.gz", "w:gz") as tar:
        tar.add(machine, arcname="m")
    data = (tmp_path / "m.tar.gz").read_bytes()
    (tmp_path / "m.tar.gz").write_bytes(data[: len(data) // 2])
    with pytest.raises(FingerprintError, match="cannot be unpacked"):
        probe(tmp_path / "m.tar.gz")


def _tar_of(path: Path, members: list[tuple[str, bytes | None, str]]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, content, link in members:
            info = tarfile.TarInfo(name)
            if link:
                info.type, info.linkname = tarfile.SYMTYPE, link
            else:
                info.size = len(content or b"")
            tar.addfile(info, io.BytesIO(content or b""))
    return path


def test_nothing_is_written_or_linked_outside_the_target(tmp_path: Path) -> None:
    target = tmp_path / "inner" / "target"
    target.mkdir(parents=True)
    archive = _tar_of(
        tmp_path / "evil.tar",
        [
            ("../../climbed", b"x", ""),
            ("/tmp/absolute-by-perfguard-test", b"x", ""),
            ("m/out", None, "../../../secret"),
            ("m/absolute", None, "/etc/passwd"),
            ("m/deep/a/b/c", b"x", ""),
            ("m/short", None, "deep/a/b"),
            ("m/short/up", None, "../../.."),
            ("m/short/up/../through", b"x", ""),
            ("m/in", None, "deep/a/b/c"),
        ],
    )
    extract(archive, target)
    outside = [path for path in tmp_path.rglob("*") if target not in path.parents and path != target]
    assert sorted(path.name for path in outside) == ["evil.tar", "inner"]
    assert not Path("/tmp/absolute-by-perfguard-test").exists()
    assert (target / "m" / "in").read_bytes() == b"x"
    root = str(target.resolve())
    assert all(os.path.realpath(path).startswith(root) for path in target.rglob("*"))


@pytest.fixture
def tree(tmp_path: Path) -> MachineTree:
    _machine(tmp_path / "root")
    return MachineTree((tmp_path / "root").resolve(), live=False)


def test_links_are_followed_inside_the_tree_and_not_out_of_it(tree: MachineTree) -> None:
    (tree.root.parent / "outside").write_text("secret")
    (tree.root / "proc" / "inside").symlink_to("version")
    (tree.root / "proc" / "out").symlink_to("../../outside")
    (tree.root / "proc" / "absolute").symlink_to("/proc/version")
    (tree.root / "proc" / "folder").symlink_to(tree.root.parent)
    assert tree.text("proc/inside") == tree.text("proc/version") is not None
    assert tree.text("proc/out") is None
    assert tree.text("proc/absolute") is None
    assert tree.text("proc/folder/outside") is None
    assert tree.names("proc/folder") == ()
    assert tree.text("proc/../../outside") is None


def test_loops_pipes_and_folders_are_missing(tree: MachineTree) -> None:
    proc = tree.root / "proc"
    (proc / "loop").symlink_to("loop")
    (proc / "a").symlink_to("b")
    (proc / "b").symlink_to("a")
    (proc / "dir").mkdir()
    os.mkfifo(proc / "pipe")
    found = {
        name: tree.text(f"proc/{name}") for name in ("loop", "a", "dir", "pipe", "absent", "version/x", "", "nul\0")
    }
    assert set(found.values()) == {None}
    assert tree.names("proc/loop") == tree.names("proc/version") == ()


def test_a_file_that_may_not_be_read_is_missing(tree: MachineTree, monkeypatch: pytest.MonkeyPatch) -> None:
    """Permissions alone do not keep root out."""
    plain_open = os.open

    def refuse(path: str, flags: int) -> int:
        if path.endswith("version"):
            raise PermissionError(13, "Permission denied", path)
        return plain_open(path, flags)

    assert tree.text("proc/version") is not None
    monkeypatch.setattr(os, "open", refuse)
    assert tree.text("proc/version") is None


def test_bad_bytes_become_replacement_marks(tree: MachineTree) -> None:
    (tree.root / "proc" / "binary").write_bytes(b"\xff\xfe\x00")
    assert tree.text("proc/binary") == "\ufffd\ufffd\x00"


def test_a_recorded_machine_takes_nothing_from_this_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "proc").mkdir()

    def refuse(*_: object) -> None:
        raise AssertionError("the live machine was asked")

    for name in ("uname", "sched_getaffinity", "cpu_count", "getloadavg", "sysconf"):
        monkeypatch.setattr(os, name, refuse)
    monkeypatch.setattr("perfguard.host.probe.amx_permission", refuse)
    monkeypatch.setattr("perfguard.host.probe.fill_from_host", refuse)
    found = probe(tmp_path)
    assert found.cpu.architecture is None
    assert found.state.kernel is None
    assert found.topology.threads_online is None


def test_the_scratch_folder_is_removed(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "m.tar", "w") as tar:
        tar.add(_machine(tmp_path / "source"), arcname="m")
    with open_tree(tmp_path / "m.tar") as tree:
        root = tree.root
        assert root.exists()
    assert not root.exists()
