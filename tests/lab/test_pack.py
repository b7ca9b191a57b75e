"""Results without weights: packed, carried and unpacked they are the same study."""

import tarfile
from pathlib import Path

import pytest

from litebert.cli import run as litebert
from litebert.errors import ConfigError, DataError
from litebert.lab.pack import pack_studies, unpack_studies
from litebert.lab.results import collect
from litebert.lab.run import open_study
from tests.lab.test_study import write_results


@pytest.fixture
def study(tmp_path: Path) -> Path:
    folder = tmp_path / "heads-cpu"
    write_results(folder, {"2 heads": [5.0, 5.1], "4 heads": [4.0]})
    pretrained = folder / "2-heads-seed0" / "pretrain"
    (pretrained / "final").mkdir(parents=True)
    (pretrained / "final" / "weights.safetensors").write_bytes(b"0" * 100_000)
    (pretrained / "metrics.jsonl").write_text("{}\n")
    (pretrained / "environment.json").write_text("{}\n")
    (folder / "2-heads-seed9").mkdir()  # unfinished
    (folder / "2-heads-seed9" / "recipe.json").write_text("{}")
    return folder


def test_a_pack_is_the_study_without_weights(study: Path, tmp_path: Path) -> None:
    archive = tmp_path / "results.tar.gz"
    names = pack_studies([study], archive)
    assert Path("heads-cpu/2-heads-seed0/metrics.jsonl") in names
    assert not any("weights" in str(name) or "seed9" in str(name) for name in names)
    assert archive.stat().st_size < 10_000
    first = archive.read_bytes()
    pack_studies([study], archive)
    assert archive.read_bytes() == first

    unpack_studies(archive, tmp_path / "there")
    there = tmp_path / "there" / "heads-cpu"
    ours, theirs = (collect(*open_study(each), each) for each in (study, there))
    assert [row.cells for row in ours] == [row.cells for row in theirs]
    assert pack_studies([there], tmp_path / "again.tar.gz") == names  # a pack can be continued


def test_unpacking_overwrites_nothing(study: Path, tmp_path: Path) -> None:
    pack_studies([study], tmp_path / "a.tar.gz")
    result = study / "2-heads-seed0" / "result.json"
    result.write_text("newer")
    assert unpack_studies(tmp_path / "a.tar.gz", tmp_path) == [
        Path("heads-cpu/2-heads-seed0/metrics.jsonl"),
        Path("heads-cpu/2-heads-seed0/environment.json"),
    ]
    assert result.read_text() == "newer"


def test_a_damaged_pack_is_refused_and_nothing_is_written(study: Path, tmp_path: Path) -> None:
    archive, out = tmp_path / "a.tar.gz", tmp_path / "out"
    pack_studies([study], archive)
    content = archive.read_bytes()
    for index in range(10, len(content), max(len(content) // 50, 1)):
        archive.write_bytes(content[:index] + bytes([content[index] ^ 0xFF]) + content[index + 1 :])
        with pytest.raises(DataError, match="cannot be unpacked"):
            unpack_studies(archive, out)
    assert not out.exists()
    archive.write_bytes(content)
    out.write_text("a file")
    with pytest.raises(ConfigError, match=r"out/.* cannot be written: .*; name another"):
        unpack_studies(archive, out)


def test_an_archive_has_a_limit(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack_studies([study], tmp_path / "a.tar.gz")
    monkeypatch.setattr("litebert.lab.pack._MOST_BYTES", 1000)
    with pytest.raises(DataError, match="holds more than 1,000 bytes; it is no pack"):
        unpack_studies(tmp_path / "a.tar.gz", tmp_path / "out")


def test_a_folder_for_the_repository(study: Path, tmp_path: Path) -> None:
    command = ["lab", "pack", str(study), "--out", str(tmp_path / "results"), "--no-metrics"]
    assert litebert(command) == 0
    assert (tmp_path / "results" / "study.json").exists()
    assert not list((tmp_path / "results").rglob("metrics.jsonl"))
    assert litebert(["lab", "table", str(tmp_path / "results")]) == 0


def test_folders_of_one_name_are_not_packed_together(study: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "heads-cpu"
    write_results(other, {"2 heads": [6.0]})
    with pytest.raises(ConfigError, match=r"heads-cpu and .*heads-cpu have the same name.*rename"):
        pack_studies([study, other], tmp_path / "a.tar.gz")


def test_what_is_no_study_and_no_pack_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no folder of a study"):
        pack_studies([tmp_path], tmp_path / "a.tar.gz")
    with pytest.raises(DataError, match=r"none.tar.gz cannot be unpacked: No such file"):
        unpack_studies(tmp_path / "none.tar.gz", tmp_path)
    (tmp_path / "b.tar.gz").write_bytes(b"nothing")
    with pytest.raises(DataError, match="cannot be unpacked"):
        unpack_studies(tmp_path / "b.tar.gz", tmp_path)
    with tarfile.open(tmp_path / "c.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "b.tar.gz", "../b")
    with pytest.raises(DataError, match="paths outside of its folder"):
        unpack_studies(tmp_path / "c.tar.gz", tmp_path / "out")
