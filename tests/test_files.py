"""A published file or folder is complete or absent; every changed byte of a folder is noticed."""

import errno
import json
import math
import os
import random
from pathlib import Path

import pytest

from litebert import files
from litebert.cli import run
from litebert.errors import CheckpointError, ConfigError
from litebert.files import (
    MANIFEST,
    Lock,
    open_atomic,
    read_json,
    remove_folder,
    remove_leftovers,
    to_json,
    verify_folder,
    write_file,
    write_folder,
    write_json,
)
from litebert.train.folder import RunFolder


def fill(folder: Path, text: str = "hello") -> None:
    (folder / "a.txt").write_text(text)
    (folder / "deep").mkdir()
    (folder / "deep" / "b.bin").write_bytes(bytes(range(256)))
    (folder / "empty").touch()


def test_written_folder_verifies_and_leaves_nothing_else(tmp_path: Path) -> None:
    target = write_folder(tmp_path / "new" / "x", fill)
    assert tuple(verify_folder(target)) == ("a.txt", "deep/b.bin", "empty")
    assert [path.name for path in target.parent.iterdir()] == ["x"]


def test_a_failing_writer_leaves_nothing(tmp_path: Path) -> None:
    def broken(folder: Path) -> None:
        fill(folder)
        raise OSError("boom")

    with pytest.raises(OSError, match="boom"):
        write_folder(tmp_path / "x", broken)
    assert not list(tmp_path.iterdir())


def test_existing_target_is_refused_unless_replaced(tmp_path: Path) -> None:
    write_folder(tmp_path / "x", fill)
    with pytest.raises(CheckpointError, match="exists already; choose another name"):
        write_folder(tmp_path / "x", fill)
    write_folder(tmp_path / "x", lambda folder: fill(folder, "second"), replace=True)
    verify_folder(tmp_path / "x")
    assert (tmp_path / "x" / "a.txt").read_text() == "second"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_replacing_works_where_names_cannot_be_exchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_exchange", lambda first, second: False)
    for text in ("first", "second"):
        write_folder(tmp_path / "x", lambda folder, text=text: fill(folder, text), replace=True)
    verify_folder(tmp_path / "x")
    assert (tmp_path / "x" / "a.txt").read_text() == "second"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_failed_replacement_keeps_the_old_folder(tmp_path: Path) -> None:
    write_folder(tmp_path / "x", fill)

    def broken(folder: Path) -> None:
        raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        write_folder(tmp_path / "x", broken, replace=True)
    verify_folder(tmp_path / "x")


def test_files_and_folders_are_on_disk_before_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    sync, rename = files._sync, files._rename
    monkeypatch.setattr(files, "_sync", lambda path: (events.append(path.name), sync(path)))
    monkeypatch.setattr(files, "_rename", lambda a, b: (events.append("RENAME"), rename(a, b)))
    write_folder(tmp_path / "x", fill)
    before, after = events[: events.index("RENAME")], events[events.index("RENAME") + 1 :]
    assert set(before[:-1]) == {"a.txt", "b.bin", "deep", "empty", MANIFEST}
    assert before[-1].startswith(".x.tmp-")
    assert after == [tmp_path.name]


def test_every_flipped_bit_and_every_truncation_is_noticed(tmp_path: Path) -> None:
    target = write_folder(tmp_path / "x", fill)
    draw = random.Random(0)
    for file in (target / "a.txt", target / "deep" / "b.bin", target / MANIFEST):
        data = file.read_bytes()
        for position in draw.sample(range(len(data)), min(len(data), 60)):
            damaged = bytearray(data)
            damaged[position] ^= 1 << draw.randrange(8)
            file.write_bytes(damaged)
            with pytest.raises(CheckpointError):
                verify_folder(target)
            file.write_bytes(data[:position])
            with pytest.raises(CheckpointError):
                verify_folder(target)
        file.write_bytes(data)
    verify_folder(target)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda f: (f / "a.txt").write_text("hello!"),
            r"a\.txt has 6 bytes, manifest\.json says 5; the file is damaged",
        ),
        (
            lambda f: (f / "a.txt").write_text("jello"),
            r"a\.txt does not have the sha256 .*the file is damaged",
        ),
        (
            lambda f: (f / "a.txt").unlink(),
            r"a\.txt is missing, manifest\.json lists it; the folder is damaged",
        ),
        (lambda f: (f / MANIFEST).unlink(), r"has no readable manifest\.json .*it is not complete"),
        (
            lambda f: (f / MANIFEST).write_text("[]"),
            r"manifest\.json is damaged or of another kind",
        ),
        (
            lambda f: (f / MANIFEST).write_text("[" * 100_000),
            r"manifest\.json is damaged or of another kind",
        ),
        (
            lambda f: (f / MANIFEST).write_bytes((f / MANIFEST).read_bytes() + b" "),
            "damaged, or was written by another",
        ),
    ],
)
def test_the_message_names_the_reason(tmp_path: Path, damage: object, message: str) -> None:
    target = write_folder(tmp_path / "x", fill)
    damage(target)  # type: ignore[operator]
    with pytest.raises(CheckpointError, match=message):
        verify_folder(target)


def test_no_folder_and_too_large_a_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CheckpointError, match="is not a folder; expected one written by litebert"):
        verify_folder(tmp_path / "absent")
    target = write_folder(tmp_path / "x", fill)
    monkeypatch.setattr(files, "MAX_MANIFEST_BYTES", 10)
    with pytest.raises(CheckpointError, match="larger than 10 bytes; litebert did not write it"):
        verify_folder(target)


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "deep/../../secret"])
def test_a_manifest_cannot_point_outside(tmp_path: Path, name: str) -> None:
    target = write_folder(tmp_path / "x", fill)
    manifest = json.loads((target / MANIFEST).read_text())
    manifest["files"] = {name: {"bytes": 0, "sha256": ""}}
    (target / MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n")
    with pytest.raises(CheckpointError, match="outside of its folder"):
        verify_folder(target)


def test_later_files_are_not_in_the_way(tmp_path: Path) -> None:
    target = write_folder(tmp_path / "x", fill)
    (target / "notes.md").write_text("mine")
    assert "notes.md" not in verify_folder(target)


def test_leftovers_of_killed_writers_are_removed(tmp_path: Path) -> None:
    write_folder(tmp_path / "x", fill)
    fill_folder = tmp_path / ".y.tmp-0123"
    fill_folder.mkdir()
    fill(fill_folder)
    file = tmp_path / ".y[1].tmp-0123"
    file.touch()
    (tmp_path / ".bashrc.tmp-mine").touch()
    assert remove_leftovers(tmp_path, "y[1]") == [file]
    assert remove_leftovers(tmp_path) == [fill_folder]
    assert sorted(path.name for path in tmp_path.iterdir()) == [".bashrc.tmp-mine", "x"]


def test_a_file_is_replaced_in_one_step_or_not_at_all(tmp_path: Path) -> None:
    path = write_file(tmp_path / "a.txt", "ä\n")
    assert path.read_bytes() == b"\xc3\xa4\n"
    with pytest.raises(TypeError, match="bytes-like"), open_atomic(path) as file:
        file.writelines([b"half", "text"])  # type: ignore[list-item]
    assert path.read_bytes() == b"\xc3\xa4\n"
    write_json(path, {"a": 1})
    assert read_json(path) == {"a": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_a_file_is_on_disk_before_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    sync, replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda descriptor: (events.append("fsync"), sync(descriptor)))
    monkeypatch.setattr(Path, "replace", lambda a, b: (events.append("rename"), replace(a, b)))
    write_file(tmp_path / "a.txt", "content")
    assert events == ["fsync", "rename", "fsync"]


def test_folders_and_special_files_are_not_replaced_by_files(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("folder", "pipe"):
        with pytest.raises(OSError, match="not a regular file"):
            write_file(tmp_path / name, b"")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "pipe"]


def test_a_removed_folder_is_gone(tmp_path: Path) -> None:
    remove_folder(write_folder(tmp_path / "x", fill))
    assert not list(tmp_path.iterdir())


def test_one_lock_excludes_another(tmp_path: Path) -> None:
    file = write_file(tmp_path / "lock", b"")
    for path in (tmp_path, file):
        with Lock(path), pytest.raises(OSError, match="unavailable"):
            Lock(path)
        Lock(path).release()


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*args: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", absent)
    living = tmp_path / ".lock.tmp-0123abcd"
    living.touch()
    with Lock(write_file(tmp_path / "lock", b"")) as one, Lock(tmp_path / "lock") as another:
        assert not one.is_held
        assert not another.is_held
    assert living.exists(), "nobody knows whether its writer is alive"
    folder = RunFolder(tmp_path / "run")
    folder.hold()
    folder.release()


def test_json_has_no_nan() -> None:
    value = {"a": math.nan, "b": [1.5, -math.inf, ("x", math.inf)], "c": {"d": 2}}
    assert json.loads(to_json(value), parse_constant=pytest.fail) == {
        "a": None,
        "b": [1.5, None, ["x", None]],
        "c": {"d": 2},
    }


def test_the_next_writer_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    for name in (".a.json.tmp-0123abcd", ".b.json.tmp-0123abcd", ".a.json.tmp-mine"):
        (tmp_path / name).touch()
    (tmp_path / ".model.tmp-0123abcd").mkdir()
    (tmp_path / ".model.tmp-0123abcd" / "x").touch()
    write_json(tmp_path / "a.json", {})
    write_folder(tmp_path / "model", fill)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".a.json.tmp-mine",
        ".b.json.tmp-0123abcd",
        "a.json",
        "model",
    ]


def test_what_a_living_writer_has_not_published_yet_stays(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    with open_atomic(target) as first:
        first.write(b"first")
        write_file(target, "second")
        assert target.read_text() == "second"
    assert target.read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize("url", ["s3://bucket/data", "gs://b/x", "https://host/a", "hf://a/b"])
def test_a_url_is_no_place_to_write(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus.txt").write_text("a text")
    commands = [
        ["tokenizer", "train", "corpus.txt", "--out", url],
        ["data", "build", "corpus.txt", "--tokenizer", "t", "--out", url],
        ["pretrain", "--data", "d", "--out", url],
        ["finetune", "rte", "--model", "m", "--data", "d", "--out", url],
        ["evaluate", "rte", "--model", "m", "--data", "d", "--submit", url],
        ["predict", "corpus.txt", "--out", url],
        ["embed", "a text", "--out", f"{url}.npy"],
        ["convert", "m", url],
        ["report", "m", "--out", url],
    ]
    for command in commands:
        assert run(command) == 2, command
        assert "is a URL, and litebert writes to local disks only" in capsys.readouterr().err
    for write in (write_json, lambda target, value: write_folder(target, fill)):
        with pytest.raises(ConfigError, match="is a URL"):
            write(Path(url), {})
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.txt"]
