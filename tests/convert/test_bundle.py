"""TensorFlow checkpoints: what the real writer wrote is read bit for bit; whatever is damaged is
refused with its reason."""

import hashlib
import shutil
from pathlib import Path

import numpy as np
import pytest

from litebert.convert.bundle import Bundle, find_prefix
from litebert.errors import ConversionError
from tests.helpers.bundles import field, table, write_bundle

GOOGLE = Path(__file__).parent / "fixtures" / "google"


@pytest.fixture
def arrays():
    random = np.random.default_rng(0)
    return {
        f"layer_{i}/kernel": random.normal(size=(i + 1, 3)).astype(np.float32) for i in range(20)
    } | {"step": np.array(7)}


def test_every_tensor_of_the_real_writer():
    bundle, digest = Bundle(GOOGLE / "model.ckpt-best"), hashlib.sha256()
    for name in sorted(bundle):
        digest.update(name.encode() + bundle[name].tobytes())
    assert digest.hexdigest() == (GOOGLE / "sha256.txt").read_text().strip()
    assert len(bundle) == 241
    assert bundle["bert/embeddings/word_embeddings"].shape == (30, 4)
    assert bundle["global_step"] == 125000


@pytest.mark.parametrize("shards", [1, 3])
def test_written_and_read_again(tmp_path, arrays, shards):
    bundle = Bundle(write_bundle(tmp_path / "model.ckpt-3", arrays, shards=shards))
    assert sorted(bundle) == sorted(arrays)
    for name, array in arrays.items():
        assert bundle[name].dtype == array.dtype
        assert np.array_equal(bundle[name], array)


@pytest.mark.parametrize(
    "name", ["", "model.ckpt-best", "model.ckpt-best.index", "model.ckpt-best.data-00000-of-00001"]
)
def test_prefix_is_found_from_any_of_its_files(name):
    assert find_prefix(GOOGLE / name) == GOOGLE / "model.ckpt-best"


def test_no_prefix_and_several(tmp_path, arrays):
    assert find_prefix(tmp_path) is None
    assert find_prefix(tmp_path / "absent") is None
    write_bundle(tmp_path / "a", arrays)
    write_bundle(tmp_path / "b", arrays)
    with pytest.raises(ConversionError, match="holds 2 checkpoints"):
        find_prefix(tmp_path)


def test_every_flipped_byte_of_the_data_is_noticed(tmp_path, arrays):
    prefix = write_bundle(tmp_path / "m", arrays)
    path = tmp_path / "m.data-00000-of-00001"
    data = path.read_bytes()
    for position in range(0, len(data), 13):
        path.write_bytes(data[:position] + bytes([data[position] ^ 0x10]) + data[position + 1 :])
        with pytest.raises(ConversionError, match="fails its checksum"):
            list(Bundle(prefix).values())


def test_any_flipped_or_missing_byte_of_the_index_is_noticed_or_harmless(tmp_path, arrays):
    prefix = write_bundle(tmp_path / "m", arrays)
    path = tmp_path / "m.index"
    data = path.read_bytes()
    damaged = [data[:i] + bytes([data[i] ^ 1 << i % 8]) + data[i + 1 :] for i in range(len(data))]
    damaged += [data[:size] for size in range(0, len(data), 7)]
    refused = 0
    for contents in damaged:
        path.write_bytes(contents)
        try:
            assert all(
                np.array_equal(array, arrays[name]) for name, array in Bundle(prefix).items()
            )
        except ConversionError:
            refused += 1
    assert refused >= len(damaged) - 40  # the footer's padding is read by nobody


def test_truncated_data(tmp_path, arrays):
    prefix = write_bundle(tmp_path / "m", arrays)
    path = tmp_path / "m.data-00000-of-00001"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ConversionError, match="truncated"):
        list(Bundle(prefix).values())
    path.write_bytes(b"")
    with pytest.raises(ConversionError, match="which has 0: the file is truncated"):
        list(Bundle(prefix).values())


def test_missing_files(tmp_path, arrays):
    prefix = write_bundle(tmp_path / "m", arrays, shards=2)
    (tmp_path / "m.data-00001-of-00002").unlink()
    with pytest.raises(ConversionError, match=r"m\.data-00001-of-00002 is not beside its index"):
        list(Bundle(prefix).values())
    with pytest.raises(ConversionError, match=r"there is no .*absent\.index"):
        Bundle(tmp_path / "absent")


@pytest.mark.parametrize(
    ("lie", "message"),
    [
        ({"dtype": 7}, "is of type string"),
        ({"dtype": 14}, "is of type bfloat16"),
        ({"dtype": 99}, "is of type number 99"),
        ({"dtype": 2}, "takes 12 bytes: damaged"),
        ({"size": 8}, "takes 8 bytes: damaged"),
        ({"size": 1 << 60}, "truncated"),
        ({"offset": 1 << 62}, "truncated"),
        ({"shard": 5}, "not beside its index"),
        ({"slices": b"\x0a\x00"}, "stored in slices"),
        ({"shape": b"\x12\xff"}, "runs past its end"),
        ({"shape": 5}, "should hold a message"),
        ({"size": b"x"}, "should hold a number"),
    ],
)
def test_lies_in_the_index(tmp_path, lie, message):
    with pytest.raises(ConversionError, match=message):
        list(Bundle(write_bundle(tmp_path / "m", {"w": np.ones(3, np.float32)}, **lie)).values())


def test_compressed_index(tmp_path, arrays):
    with pytest.raises(ConversionError, match="compressed \\(snappy\\)"):
        Bundle(write_bundle(tmp_path / "m", arrays, compression=1))
    with pytest.raises(ConversionError, match="compressed \\(number 9\\)"):
        Bundle(write_bundle(tmp_path / "m", arrays, compression=9))


def test_other_files_under_the_name(tmp_path):
    path = tmp_path / "m.index"
    for contents in (b"", b"not a table", bytes(1000)):
        path.write_bytes(contents)
        with pytest.raises(ConversionError, match="truncated or of another kind"):
            Bundle(tmp_path / "m")
    path.write_bytes(table({b"w": b""}))
    with pytest.raises(ConversionError, match="no header"):
        Bundle(tmp_path / "m")
    path.write_bytes(table({b"": b"\x10\x01"}))
    with pytest.raises(ConversionError, match="big-endian"):
        Bundle(tmp_path / "m")


def test_index_of_absurd_size_is_not_read(tmp_path):
    shutil.copy(GOOGLE / "model.ckpt-best.index", tmp_path / "m.index")
    with (tmp_path / "m.index").open("r+b") as file:
        file.truncate(1 << 30)  # sparse: takes no room
    with pytest.raises(ConversionError, match="more than any checkpoint index"):
        Bundle(tmp_path / "m")


def test_names_that_share_a_long_beginning_are_refused(tmp_path):
    """A small index, whose names would take gigabytes of memory."""
    names = [b"n" * 10_000 + b"%04d" % number for number in range(200)]
    (tmp_path / "m.index").write_bytes(table({b"": field(1, 1)} | dict.fromkeys(names, b"")))
    with pytest.raises(ConversionError, match=r"a name in .* has 10,004 bytes, at most 1,000"):
        Bundle(tmp_path / "m")


def test_index_of_many_blocks(tmp_path):
    arrays = {f"key{i:05d}": np.full(i % 5, i, dtype=np.int32) for i in range(3000)}
    write_bundle(tmp_path / "m", arrays, per_block=11)
    bundle = Bundle(tmp_path / "m")
    assert list(bundle) == sorted(arrays)
    for name in ("key00000", "key01234", "key02999"):
        np.testing.assert_array_equal(bundle[name], arrays[name])
