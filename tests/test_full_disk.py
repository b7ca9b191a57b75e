"""A disk that takes only so many bytes of a file: one error, what was there stays, nothing else is
left."""

from collections.abc import Callable
from pathlib import Path

import pytest

from litebert import cli
from litebert.data.build import build_shards
from litebert.errors import LitebertError
from litebert.infer.files import PredictOptions, predict_file
from litebert.infer.predictor import Predictor, load
from litebert.testing import tiny_corpus, tiny_tokenizer
from litebert.text.tokenizer import Tokenizer
from tests.helpers.building import contents
from tests.helpers.full_disk import full_disk
from tests.helpers.models import save_model

LIMITS = (0, 1, 100, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 1_000_000)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    tiny_corpus(folder / "corpus.txt")
    tiny_tokenizer(folder / "tokenizer")
    (folder / "rows.txt").write_text("the sailor sees a boat\n" * 500)
    save_model(folder / "model", "classify")
    return folder


@pytest.fixture(scope="module")
def model(inputs: Path) -> Predictor:
    return load(inputs / "model", device="cpu", engine="torch")


def ended(work: Callable[[], object]) -> bool:
    """Whether it was done; nothing but a LitebertError may keep it from that."""
    try:
        work()
    except LitebertError as error:
        message = str(error)
    else:
        return True
    assert "File too large" in message or "space" in message
    return False


@pytest.mark.parametrize("limit", LIMITS)
def test_a_build_resumes_when_there_is_room(limit: int, inputs: Path, tmp_path: Path) -> None:
    def build() -> None:
        build_shards([inputs / "corpus.txt"], tokenizer=inputs / "tokenizer", out=tmp_path / "out")

    with full_disk(limit):
        assert ended(build) == (limit == LIMITS[-1])
    build()
    assert sorted(contents(tmp_path / "out")) == [
        *(f"00000.{part}.npy" for part in ("documents", "sentences", "tokens")),
        "index.json",
        *(f"tokenizer/{name}" for name in ("spiece.model", "tokenizer.json")),
        "tokenizer/tokenizer_config.json",
    ]


@pytest.mark.parametrize("limit", LIMITS)
def test_predictions_resume_when_there_is_room(
    limit: int, inputs: Path, model: Predictor, tmp_path: Path
) -> None:
    out = tmp_path / "out.jsonl"
    options = PredictOptions(verb="classify", overwrite=True)
    predict_file(model, inputs / "rows.txt", out, options)
    before = contents(tmp_path)
    with full_disk(limit):
        is_done = ended(lambda: predict_file(model, inputs / "rows.txt", out, options))
    assert is_done == (limit == LIMITS[-1])
    assert out.read_bytes() == before["out.jsonl"]
    predict_file(model, inputs / "rows.txt", out, options)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("limit", LIMITS)
def test_a_tokenizer_is_replaced_or_stays(limit: int, inputs: Path, tmp_path: Path) -> None:
    old = tiny_tokenizer(tmp_path / "tokenizer", vocab_size=80)
    new = Tokenizer.load(inputs / "tokenizer")
    before = contents(tmp_path)
    with full_disk(limit):
        is_done = ended(lambda: new.save(old))
    assert is_done == (limit == LIMITS[-1])
    assert is_done or contents(tmp_path) == before


@pytest.mark.parametrize("limit", LIMITS)
def test_vectors_are_replaced_or_stay(
    limit: int, inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "vectors.npy"
    out.write_bytes(b"old")
    words = ["embed", *["a text"] * 8, "--model", str(inputs / "model"), "--device", "cpu"]
    with full_disk(limit):
        code = cli.run([*words, "--out", str(out), "--overwrite"])
    assert code in (0, 1, 2, 3)
    assert "Traceback" not in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["vectors.npy"]
    assert (code == 0) != (out.read_bytes() == b"old")
