"""`litebert convert`: every kind to every other, tokenizers included; whatever is wrong ends in one
sentence and a code."""

import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import sentencepiece
import torch
import transformers
from safetensors.torch import load_file

from litebert.cli import run
from litebert.config import PRESETS, HeadConfig, ModelConfig
from litebert.convert.folder import ConvertOptions, convert_folder
from litebert.errors import ConversionError
from litebert.loading import load_checkpoint
from litebert.model.model import Model
from litebert.storage.checkpoint import Checkpoint
from litebert.text.tokenizer import Tokenizer
from tests.helpers.full_disk import full_disk
from tests.helpers.huggingface import foreign_model

GOOGLE = Path(__file__).parent / "fixtures" / "google"
TEXT = "The quick brown fox jumps over the lazy dog, and 12 hens (or more) look on."


@pytest.fixture(scope="module")
def spiece() -> bytes:
    writer = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(
            [
                TEXT.lower(),
                "a quick study of lazy dogs and brown hens",
                "over and over the fox looks on",
            ]
            * 20
        ),
        model_writer=writer,
        vocab_size=70,
        hard_vocab_limit=False,
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
        control_symbols=["[CLS]", "[SEP]", "[MASK]"],
        model_type="unigram",
        minloglevel=2,
    )
    return writer.getvalue()


@pytest.fixture
def albert(tmp_path):
    """A Hugging Face folder without a tokenizer."""
    foreign_model("AlbertForPreTraining", vocab_size=80).save_pretrained(tmp_path / "albert")
    return tmp_path / "albert"


def command(*args: object) -> int:
    return run(["convert", *map(str, args)])


def test_huggingface_to_litebert_and_back_with_the_tokenizer(albert, spiece, tmp_path, capsys):
    (albert / "spiece.model").write_bytes(spiece)
    assert command(albert, tmp_path / "ours") == 0
    out = capsys.readouterr()
    assert "parameters (masked, order), huggingface to litebert, with its tokenizer" in out.out
    assert out.err == ""
    checkpoint = Checkpoint.load(tmp_path / "ours")
    assert checkpoint.tokenizer is not None
    assert checkpoint.tokenizer.model == spiece

    assert command(tmp_path / "ours", tmp_path / "theirs", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["source"], report["target"], report["tokenizer"]) == (
        "litebert",
        "huggingface",
        True,
    )
    assert report["parameters"] == sum(
        tensor.numel() for tensor in checkpoint.model.state_dict().values()
    )
    before, after = (
        load_file(folder / "model.safetensors") for folder in (albert, tmp_path / "theirs")
    )
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_tokenizer_that_we_write_loads_in_transformers(spiece, tmp_path):
    model = Model(ModelConfig(encoder=PRESETS["tiny"]))
    Checkpoint(model=model, tokenizer=Tokenizer(spiece)).save(tmp_path / "ours")
    convert_folder(tmp_path / "ours", tmp_path / "theirs")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs")
    pair = Tokenizer(spiece).pair(TEXT, "Lazy dogs.")
    encoded = theirs(TEXT, "Lazy dogs.")
    assert encoded["input_ids"] == list(pair.token_ids)
    assert encoded["token_type_ids"] == list(pair.segment_ids)


def test_google_to_litebert_and_to_huggingface(tmp_path, spiece, capsys):
    source = shutil.copytree(GOOGLE, tmp_path / "google")
    for number, path in enumerate((source, source / "model.ckpt-best.index")):
        assert convert_folder(path, tmp_path / str(number)).source == "google"
    assert command(source / "model.ckpt-best", tmp_path / "ours") == 0
    out = capsys.readouterr()
    assert "2,532 parameters (masked, order), google to litebert, without a tokenizer" in out.out
    assert "note: 161 tensors of the optimizer" in out.err
    assert "note: there is no 30k-clean.model or spiece.model" in out.err
    assert command(source, tmp_path / "theirs", "--to", "huggingface") == 0
    _, info = transformers.AlbertForPreTraining.from_pretrained(
        tmp_path / "theirs", output_loading_info=True
    )
    assert not any(info.values())

    (source / "30k-clean.model").write_bytes(spiece)  # of 70 pieces, the model has 30
    capsys.readouterr()
    assert command(source, tmp_path / "again") == 3
    assert "the model only 30 embeddings: they do not belong together" in capsys.readouterr().err
    assert not (tmp_path / "again").exists()


def test_bert_converts_its_weights_only_and_says_so(tmp_path, capsys):
    foreign_model("BertForMaskedLM").save_pretrained(tmp_path / "bert")
    (tmp_path / "bert" / "vocab.txt").write_text("[PAD]\n[UNK]\n")
    assert command(tmp_path / "bert", tmp_path / "ours") == 0
    assert (
        "is WordPiece, which litebert does not read: only the weights were converted"
        in capsys.readouterr().err
    )
    assert Checkpoint.load(tmp_path / "ours").tokenizer is None


def test_options_reach_the_readers(albert, tmp_path):
    assert command(albert, tmp_path / "a", "--activation", "relu", "--hf-compat") == 0
    encoder = Checkpoint.load(tmp_path / "a").model.config.encoder
    assert (encoder.activation, encoder.hf_compat) == ("relu", True)
    assert command(tmp_path / "a", tmp_path / "b", "--activation", "gelu_erf") == 0
    assert json.loads((tmp_path / "b" / "config.json").read_text())["hidden_act"] == "gelu"


def test_empty_target_is_taken_and_a_full_one_is_not(albert, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    assert command(albert, tmp_path / "empty") == 0
    assert command(albert, tmp_path / "empty") == 0, "done already"
    assert command(albert, tmp_path / "empty", "--activation", "relu") == 2
    assert "exists and is not an empty folder" in capsys.readouterr().err


def damaged(folder: Path, name: str) -> Path:
    path = folder / name
    path.write_bytes(path.read_bytes()[:-10])
    return folder


@pytest.mark.parametrize(
    ("make", "code", "message"),
    [
        (lambda albert: albert.parent / "absent", 3, "there is no "),
        (lambda albert: albert / "config.json", 3, "is a file; expected a model folder"),
        (lambda albert: albert.parent, 3, "has no config.json"),
        (lambda albert: damaged(albert, "model.safetensors"), 3, "truncated or damaged"),
        (lambda albert: damaged(albert, "config.json"), 3, "cannot be read as JSON"),
        (
            lambda albert: damaged(
                shutil.copytree(GOOGLE, albert / "g"), "model.ckpt-best.data-00000-of-00001"
            ),
            3,
            "truncated",
        ),
        (
            lambda albert: damaged(shutil.copytree(GOOGLE, albert / "g"), "model.ckpt-best.index"),
            3,
            "truncated or of another kind",
        ),
    ],
)
def test_bad_sources_end_in_one_sentence(albert, tmp_path, capsys, make, code, message):
    assert command(make(albert), tmp_path / "target") == code
    err = capsys.readouterr().err
    assert message in err
    assert err.startswith("litebert convert: ")
    assert err.count("\n") == 1
    assert not (tmp_path / "target").exists()


def test_unknown_class_litebert_to_litebert_and_what_cannot_be_expressed(albert, tmp_path, capsys):
    data = json.loads((albert / "config.json").read_text())
    (albert / "config.json").write_text(json.dumps(data | {"architectures": ["AlbertForDreaming"]}))
    assert command(albert, tmp_path / "a") == 3
    assert "['AlbertForDreaming']; known classes are AlbertModel" in capsys.readouterr().err
    heads = tuple(HeadConfig(kind=kind, labels=("a", "b")) for kind in ("classify", "tag"))
    model = Model(ModelConfig(encoder=PRESETS["tiny"], heads=heads))
    Checkpoint(model=model).save(tmp_path / "ours")
    assert command(tmp_path / "ours", tmp_path / "a", "--to", "litebert") == 2
    assert "is a litebert folder already" in capsys.readouterr().err
    assert command(tmp_path / "ours", tmp_path / "a") == 3
    assert "this one has classify, tag: fine-tune a model for each" in capsys.readouterr().err
    assert not (tmp_path / "a").exists()


def test_errors_of_the_system_are_one_sentence_too(albert, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    for source, target in (
        (albert, tmp_path / "file" / "target"),
        (tmp_path / ("x" * 300), tmp_path / "target"),
    ):
        assert command(source, target) == 3
        err = capsys.readouterr().err
        assert err.startswith("litebert convert: converting ")
        assert err.count("\n") == 1


AUDIT = """
import sys
def hook(event, args):
    if event.startswith("pickle."):
        raise RuntimeError(f"{event} {args}")
import litebert.commands.convert, litebert.cli  # torch's own import is not what is watched
sys.addaudithook(hook)
for source, target in zip(sys.argv[1::2], sys.argv[2::2]):
    code = litebert.cli.run(["convert", source, target])
    assert code == 0, code
"""


def test_no_pickle_in_any_conversion(albert, spiece, tmp_path):
    (albert / "spiece.model").write_bytes(spiece)
    steps = [albert, tmp_path / "a", tmp_path / "a", tmp_path / "b", GOOGLE, tmp_path / "c"]
    done = subprocess.run(
        [sys.executable, "-c", AUDIT, *map(str, steps)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_manifest_beside_a_hugging_face_folder_is_verified(
    albert: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    convert_folder(albert, tmp_path / "ours")
    theirs = convert_folder(tmp_path / "ours", tmp_path / "theirs").folder
    load_checkpoint(theirs)
    weights = bytearray((theirs / "model.safetensors").read_bytes())
    weights[-3] ^= 1
    (theirs / "model.safetensors").write_bytes(weights)
    assert run(["convert", str(theirs), str(tmp_path / "again")]) == 3
    message = capsys.readouterr().err
    assert "does not have the sha256 that manifest.json says" in message
    assert "if you changed the folder on purpose, delete its manifest.json" in message
    load_checkpoint(theirs, unverified=True)
    (theirs / "manifest.json").write_text('{"manifest_version": 3}')  # another program's
    load_checkpoint(theirs)
    (theirs / "manifest.json").write_text('{"format": "litebert-fol')
    with pytest.raises(ConversionError, match="is damaged or of another kind"):
        load_checkpoint(theirs)


@pytest.mark.parametrize("limit", [0, 2_000, 8_000])
@pytest.mark.parametrize("weights", [None, "int8"])
def test_a_full_disk_leaves_nothing(albert, tmp_path, weights, limit):
    (tmp_path / "there").mkdir()
    with full_disk(limit), pytest.raises(ConversionError, match=r"failed: .*File too large"):
        convert_folder(albert, tmp_path / "there" / "x", options=ConvertOptions(weights=weights))
    assert not list((tmp_path / "there").iterdir())
