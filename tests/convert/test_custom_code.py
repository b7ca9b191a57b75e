"""Models that no class of transformers computes, as folders with their own modeling file: the Auto
classes load and train them there, and they come back bit for bit."""

import ast
import json
import random
import time
from dataclasses import fields, replace

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import litebert
from litebert.config import LABELED_HEADS, PRESETS, EncoderConfig, HeadConfig, ModelConfig
from litebert.convert import huggingface_writer
from litebert.convert.custom_code import MODELING_FILE
from litebert.convert.folder import convert_folder
from litebert.convert.huggingface import read_huggingface
from litebert.convert.huggingface_writer import PLAIN_RECIPE, to_huggingface, why_custom
from litebert.errors import ConversionError
from litebert.files import verify_folder
from litebert.loading import load_checkpoint
from litebert.model.model import Model
from litebert.recipes import NAMED
from litebert.storage.checkpoint import Checkpoint
from litebert.tasks.task import EmbedCard, Task, TaskCard
from litebert.testing import tiny_tokenizer
from litebert.text.tokenizer import Tokenizer
from tests.helpers.huggingface import (
    JUNK,
    difference,
    inputs,
    our_outputs,
    randomize,
    their_outputs,
)

TINY = replace(PRESETS["tiny"], vocab_size=60, norm="pre")
CLASSES = {
    (): "AutoModel",
    ("masked", "order"): "AutoModelForPreTraining",
    ("masked",): "AutoModelForMaskedLM",
    ("classify",): "AutoModelForSequenceClassification",
    ("multilabel",): "AutoModelForSequenceClassification",
    ("regress",): "AutoModelForSequenceClassification",
    ("tag",): "AutoModelForTokenClassification",
    ("span",): "AutoModelForQuestionAnswering",
    ("choose",): "AutoModelForMultipleChoice",
}


@pytest.fixture(autouse=True, scope="module")
def _modules(tmp_path_factory):
    """Where transformers keeps copies of modeling files."""
    with pytest.MonkeyPatch.context() as patch:
        folder = str(tmp_path_factory.mktemp("modules"))
        patch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", folder)
        yield


def exported(folder, *kinds, encoder=TINY, dropout=0.0) -> Model:
    """A random model of ours, written to `folder` for transformers."""
    heads = tuple(
        HeadConfig(
            kind=kind,
            labels=("no", "yes", "naïve") if kind in LABELED_HEADS else (),
            dropout=dropout if kind != "masked" else 0.0,
        )
        for kind in kinds
    )
    ours = Model(ModelConfig(encoder=encoder, heads=heads)).eval()
    randomize(ours)
    folder.mkdir(exist_ok=True)
    to_huggingface(ours.config, ours.state_dict()).write(folder)
    return ours


def loaded(folder, name="AutoModel", **options):
    theirs, info = getattr(transformers, name).from_pretrained(
        folder, trust_remote_code=True, output_loading_info=True, **options
    )
    assert not any(info.values()), info
    return theirs.eval()


def assert_same(folder, ours: Model) -> None:
    back = read_huggingface(folder)
    assert back.config == ours.config
    assert back.weights.keys() == ours.state_dict().keys()
    assert all(torch.equal(back.weights[key], value) for key, value in ours.state_dict().items())
    assert back.notes == ()


@pytest.mark.parametrize("kinds", CLASSES, ids=lambda kinds: "-".join(kinds) or "none")
def test_every_head_loads_agrees_and_comes_back(kinds, tmp_path):
    ours = exported(tmp_path / "a", *kinds, dropout=0.1 if kinds != ("masked",) else 0.0)
    theirs, batch = loaded(tmp_path / "a", CLASSES[kinds]), inputs(padding="left")
    with torch.no_grad():
        assert difference(our_outputs(ours, batch), their_outputs(theirs, batch)) < 1e-5
    assert_same(tmp_path / "a", ours)
    theirs.save_pretrained(tmp_path / "b")  # with the modeling file, which works again
    assert (tmp_path / "b" / MODELING_FILE.name).read_bytes() == MODELING_FILE.read_bytes()
    loaded(tmp_path / "b", CLASSES[kinds])
    assert_same(tmp_path / "b", ours)
    if ours.config.heads and ours.config.heads[0].labels:
        assert theirs.config.id2label == {0: "no", 1: "yes", 2: "naïve"}


# For each field a value that is not its default, and what must stand beside it.
VARIANTS = {
    "vocab_size": {"vocab_size": 70},
    "embedding_size": {"embedding_size": TINY.hidden_size},
    "embedding_bands": {"embedding_bands": (9, 40)},
    "embedding_band_factor": {"embedding_bands": (20,), "embedding_band_factor": 2},
    "hidden_size": {"hidden_size": 24},
    "num_layers": {"num_layers": 2},
    "num_attention_heads": {"num_attention_heads": 2},
    "ffn_size": {"ffn_size": 48},
    "share": {"share": "attention"},
    "num_groups": {"num_groups": 2},
    "layers_per_group": {"layers_per_group": 2, "share": "ffn"},
    "cycle": {"cycle": "reversed", "layers_per_group": 2},
    "unshared_ends": {"unshared_ends": 1, "num_layers": 4},
    "adapter_rank": {"adapter_rank": 3},
    "reversible": {"reversible": True, "attention_dropout": 0.2},
    "activation": {"activation": "gelu_erf"},
    "norm": {"norm": "pre"},
    "embedding_dropout": {"embedding_dropout": 0.2},
    "attention_dropout": {"attention_dropout": 0.3},
    "attention_output_dropout": {"attention_output_dropout": 0.4},
    "ffn_dropout": {"ffn_dropout": 0.5},
    "norm_epsilon": {"norm_epsilon": 0.1},
    "max_positions": {"max_positions": 16},
    "num_segments": {"num_segments": 3},
    "init_std": {"init_std": 0.3},
    "residual_init": {"residual_init": 0.5},
    "positions": {"positions": "rotary"},
    "rotary_base": {"positions": "rotary", "rotary_base": 100.0},
    "pooler": {"pooler": False},
    "hf_compat": {"hf_compat": True, "embedding_size": TINY.hidden_size, "ffn_dropout": 0.5},
}


def test_every_setting_of_an_encoder_is_tried():
    """A new field of EncoderConfig belongs into modeling_litebert.py and VARIANTS, or is refused by
    custom_settings."""
    assert VARIANTS.keys() == {field.name for field in fields(EncoderConfig)}


@pytest.mark.parametrize("name", VARIANTS)
def test_every_setting_agrees_in_training_too(name, tmp_path):
    encoder = replace(TINY, **VARIANTS[name])
    assert getattr(encoder, name) != getattr(EncoderConfig(), name)
    ours = exported(tmp_path, "masked", encoder=encoder)
    theirs, batch = loaded(tmp_path, "AutoModelForMaskedLM"), inputs(padding="right")
    gradients = []
    for model, outputs in ((ours.train(), our_outputs), (theirs.train(), their_outputs)):
        torch.manual_seed(0)
        (logits,) = outputs(model, batch)
        logits.square().mean().backward()
        token = next(model.encoder.embedding.token.parameters()).grad
        gradients.append([logits.detach(), token, model.encoder.attentions[0].key.weight.grad])
    assert difference(*gradients) < 1e-5
    assert_same(tmp_path, ours)
    assert theirs.config.initializer_range == encoder.init_std  # what new heads start from


def test_post_norm_agrees_where_sharing_needs_the_file(tmp_path):
    ours = exported(tmp_path, "masked", encoder=replace(TINY, norm="post", share="ffn"))
    theirs, batch = loaded(tmp_path, "AutoModelForMaskedLM"), inputs()
    with torch.no_grad():
        assert difference(our_outputs(ours, batch), their_outputs(theirs, batch)) < 1e-5
    assert_same(tmp_path, ours)


@pytest.mark.parametrize("settings", [{}, {"reversible": True}], ids=["plain", "reversible"])
def test_bfloat16_gives_the_same_bits(settings, tmp_path):
    encoder = replace(TINY, positions="rotary", adapter_rank=2, **settings)
    ours = exported(tmp_path, "masked", encoder=encoder).bfloat16()
    theirs = loaded(tmp_path, "AutoModelForMaskedLM", dtype=torch.bfloat16)
    with torch.no_grad():
        logits = our_outputs(ours, inputs(padding="left"))
        assert torch.equal(*logits, *their_outputs(theirs, inputs(padding="left")))
    assert logits[0].dtype == torch.bfloat16


def test_the_comparison_can_fail(tmp_path):
    exported(tmp_path, "masked")
    data = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(data | {"activation": "relu"}))
    ours, batch = exported(tmp_path / "true", "masked"), inputs()
    theirs = loaded(tmp_path, "AutoModelForMaskedLM")
    with torch.no_grad():
        assert difference(our_outputs(ours, batch), their_outputs(theirs, batch)) > 1e-3


@pytest.mark.parametrize("reversible", [False, True])
def test_states_attentions_and_tuples_are_ours(reversible, tmp_path):
    shape = {"layers_per_group": 2, "positions": "rotary", "adapter_rank": 2}
    encoder = replace(TINY, reversible=reversible, **shape)
    ours = exported(tmp_path, encoder=encoder)
    theirs, batch = loaded(tmp_path), inputs(padding="right")
    call = {"input_ids": batch["token_ids"], "attention_mask": batch["mask"].long()}
    with torch.no_grad():
        out = theirs(**call, output_hidden_states=True, output_attentions=True)
        ours_in = {"token_ids": batch["token_ids"], "mask": batch["mask"]}
        states, weights = (
            method(**ours_in)
            for method in (ours.encoder.all_states, ours.encoder.attention_weights)
        )
        assert difference(states, list(out.hidden_states)) < 1e-5
        assert difference(weights, list(out.attentions)) < 1e-5
        positions = torch.arange(batch["token_ids"].shape[1])
        tokens = ours.encoder.embedding.token(batch["token_ids"])
        attention_mask = call["attention_mask"]
        again = theirs(inputs_embeds=tokens, attention_mask=attention_mask, position_ids=positions)
        assert torch.equal(again.last_hidden_state, out.last_hidden_state)
        assert torch.equal(theirs(**call, return_dict=False)[0], out.last_hidden_state)
    with pytest.raises(ValueError, match="the input has 65 tokens, the model reads at most 64"):
        theirs(input_ids=torch.zeros(1, 65, dtype=torch.long))


@pytest.mark.parametrize("settings", [{}, {"reversible": True}], ids=["plain", "reversible"])
def test_gradient_checkpointing_changes_no_gradient(settings, tmp_path):
    exported(
        tmp_path,
        "masked",
        encoder=replace(TINY, attention_dropout=0.1, positions="rotary", **settings),
    )
    gradients = []
    for reentrant in (None, False, True):
        theirs = loaded(tmp_path, "AutoModelForMaskedLM").train()
        if reentrant is not None:
            theirs.gradient_checkpointing_enable({"use_reentrant": reentrant})
            assert theirs.is_gradient_checkpointing
        torch.manual_seed(0)
        theirs(input_ids=inputs()["token_ids"]).logits.square().mean().backward()
        weights = theirs.encoder.attentions[0].query, theirs.encoder.embedding.token
        gradients.append([each.weight.grad for each in weights])
    assert difference(gradients[0], gradients[1]) == 0
    assert difference(gradients[0], gradients[2]) < 1e-7


IDS = inputs()["token_ids"]
EVEN = IDS.where(IDS % 2 == 0, -100)
TARGETS = {
    ("masked",): {"labels": EVEN},
    ("masked", "order"): {"labels": EVEN, "sentence_order_label": torch.tensor([0, 1, 1])},
    ("classify",): {"labels": torch.tensor([0, 2, 1])},
    ("multilabel",): {"labels": torch.eye(3)},
    ("regress",): {"labels": torch.tensor([0.5, 2.0, -1.0])},
    ("tag",): {"labels": (IDS % 3).where(IDS % 2 == 0, -100)},
    ("span",): {
        "start_positions": torch.tensor([1, 99, 3]),
        "end_positions": torch.tensor([2, 99, 5]),
    },
    ("choose",): {"labels": torch.tensor([2])},
}


@pytest.mark.parametrize("kinds", TARGETS, ids="-".join)
def test_losses_are_those_of_albert(kinds, tmp_path, monkeypatch):
    """One model in both forms: as transformers' own class, and with our modeling file."""
    exported(tmp_path / "albert", *kinds, encoder=replace(TINY, norm="post"))
    monkeypatch.setattr(huggingface_writer, "why_custom", lambda config: "a test wants it")
    exported(tmp_path / "custom", *kinds, encoder=replace(TINY, norm="post"))
    losses = []
    for folder in ("albert", "custom"):
        theirs = loaded(tmp_path / folder, CLASSES[kinds])
        assert type(theirs).__name__.startswith("Albert" if folder == "albert" else "Litebert")
        theirs.config.problem_type = (
            None if kinds != ("multilabel",) else theirs.config.problem_type
        )
        ids = IDS[None] if kinds == ("choose",) else IDS
        losses.append(theirs(input_ids=ids, **TARGETS[kinds]).loss)
    assert torch.allclose(*losses, rtol=1e-5)


def test_joint_span_head_agrees_in_training_too(tmp_path):
    """Start, end given start, answerability: SQuAD 2, on an encoder that is a plain Albert's."""
    ours = exported(tmp_path, "joint_span", encoder=replace(TINY, norm="post"), dropout=0.2)
    theirs, batch = loaded(tmp_path, "AutoModelForQuestionAnswering"), inputs(padding="right")
    call = {
        "input_ids": batch["token_ids"],
        "token_type_ids": batch["segment_ids"],
        "attention_mask": batch["mask"].long(),
    }
    with torch.no_grad():
        out, expected = theirs(**call), ours(**batch).logits["joint_span"]
    logits = [out.start_logits, out.end_logits, out.unanswerable_logits]
    assert difference(list(expected), logits) < 1e-5

    starts, ends = torch.tensor([0, 2, 1]), torch.tensor([0, 3, 1])
    ours.train(), theirs.train()
    torch.manual_seed(0)
    loss = theirs(**call, start_positions=starts, end_positions=ends).loss
    torch.manual_seed(0)
    states = ours.encoder(**batch)
    start, end, unanswerable = ours.heads["joint_span"](states, batch["mask"], starts)
    cross_entropy = torch.nn.functional.cross_entropy
    span_loss = (cross_entropy(start, starts) + cross_entropy(end, ends)) / 2
    null = torch.tensor([1.0, 0.0, 0.0])
    null_loss = torch.nn.functional.binary_cross_entropy_with_logits(unanswerable, null)
    assert torch.allclose(loss, span_loss + null_loss / 2)
    assert_same(tmp_path, ours)
    theirs.save_pretrained(tmp_path / "b")
    assert_same(tmp_path / "b", ours)


def test_another_head_starts_new(tmp_path):
    """Fine-tuning there: only the new head is missing, a pooler too where there was none."""
    exported(tmp_path, "masked", "order", encoder=replace(TINY, init_std=0.5))
    load = transformers.AutoModelForTokenClassification.from_pretrained
    options = {"trust_remote_code": True, "output_loading_info": True}
    theirs, info = load(tmp_path, num_labels=5, **options)
    assert set(info["missing_keys"]) == {"output.weight", "output.bias"}
    assert not info["unexpected_keys"]
    assert 0.3 < theirs.output.weight.std() < 0.6
    assert not theirs.output.bias.any()

    exported(tmp_path / "b", "masked", encoder=replace(TINY, pooler=False))
    load = transformers.AutoModelForSequenceClassification.from_pretrained
    theirs, info = load(tmp_path / "b", **options)
    assert {name.split(".")[-2] for name in info["missing_keys"]} == {"output", "pooler"}
    theirs.save_pretrained(tmp_path / "c")
    back = read_huggingface(tmp_path / "c").config
    assert [head.kind for head in back.heads] == ["classify"]
    assert back.encoder == replace(TINY, pooler=True)

    exported(tmp_path / "d", "span")  # which has as many outputs as there are labels by default
    _, info = load(tmp_path / "d", **options)
    assert set(info["missing_keys"]) == {"output.weight", "output.bias"}


def test_span_heads_of_the_first_folders_are_read(tmp_path):
    """Their name was that of a classifier."""
    ours, file = exported(tmp_path, "span"), tmp_path / "model.safetensors"
    weights = {name.replace("span.", "output."): each for name, each in load_file(file).items()}
    assert "output.weight" in weights
    save_file(weights, file)
    assert_same(tmp_path, ours)


def test_tied_weights_are_stored_once_and_resized_together(tmp_path):
    exported(tmp_path, "masked")
    theirs = loaded(tmp_path, "AutoModelForMaskedLM")
    theirs.resize_token_embeddings(66)
    theirs.save_pretrained(tmp_path / "b")
    stored = load_file(tmp_path / "b" / "model.safetensors")
    assert [name for name, each in stored.items() if each.shape == (66, 16)] == [
        "encoder.embedding.token.weight"
    ]
    assert theirs(input_ids=IDS).logits.shape[-1] == 66
    back = read_huggingface(tmp_path / "b")
    assert back.config.encoder.vocab_size == 66
    assert not back.weights["heads.masked.bias"][60:].any()


def test_trainer_trains_and_what_it_saves_loads_here(tmp_path):
    """Rows whose first token is even, or odd: learned in a few steps."""
    ours = exported(tmp_path / "a", "masked", "order", encoder=replace(TINY, ffn_dropout=0.1))
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(5, 60, (64, 6), generator=generator)
    rows[:, 0] = torch.randint(5, 7, (64,), generator=generator)
    data = [{"input_ids": row, "labels": row[0] % 2} for row in rows]
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "a", trust_remote_code=True, id2label={0: "even", 1: "odd"}
    )
    settings = transformers.TrainingArguments(
        output_dir=str(tmp_path / "run"),
        per_device_train_batch_size=16,
        gradient_accumulation_steps=2,
        num_train_epochs=10,
        learning_rate=3e-3,
        logging_steps=1,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    trainer = transformers.Trainer(model=theirs, args=settings, train_dataset=data)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses[-1] < losses[0] / 2
    trainer.save_model(str(tmp_path / "b"))
    back = read_huggingface(tmp_path / "b").model()
    assert back.config.heads == (HeadConfig(kind="classify", labels=("even", "odd")),)
    assert back.config.encoder == ours.config.encoder
    theirs.eval()
    with torch.no_grad():
        logits = back.logits("classify", back.encoder(token_ids=rows))
        assert difference([logits], [theirs(input_ids=rows).logits]) < 1e-5


@pytest.fixture(scope="module")
def with_tokenizer(tmp_path_factory):
    """A litebert checkpoint with a tokenizer, and its export."""
    folder = tmp_path_factory.mktemp("tokenizer")
    tokenizer = Tokenizer.load(tiny_tokenizer(folder / "tokenizer"))
    encoder = replace(TINY, vocab_size=tokenizer.vocab_size, max_positions=16)
    ours = Model(ModelConfig(encoder=encoder, heads=(HeadConfig(kind="masked"),)))
    randomize(ours)
    Checkpoint(model=ours, tokenizer=tokenizer).save(folder / "ours")
    conversion = convert_folder(folder / "ours", folder / "theirs")
    assert PLAIN_RECIPE in conversion.notes[0]
    return folder


TEXTS = ["the cat likes the old dog.", "a dog", "the old dog likes the cat and the dog. " * 5]


def test_tokenizer_and_embeddings_agree(with_tokenizer):
    from sentence_transformers import SentenceTransformer

    ours, theirs = with_tokenizer / "ours", with_tokenizer / "theirs"
    predictor = litebert.load(ours)
    tokenizer = transformers.AutoTokenizer.from_pretrained(theirs, trust_remote_code=True)
    assert tokenizer.model_max_length == 16
    for text in TEXTS[:2]:
        assert tokenizer(text)["input_ids"] == list(predictor.tokenizer.pair(text).token_ids)
    vectors = SentenceTransformer(str(theirs), trust_remote_code=True, device="cpu").encode(TEXTS)
    assert abs(vectors - predictor.embed(TEXTS)).max() < 1e-5
    fill = transformers.pipeline("fill-mask", model=str(theirs), trust_remote_code=True, top_k=3)
    best = fill("the [MASK] likes the dog.")
    for guess, expected in zip(best, predictor.fill("the [MASK] likes the dog.")[0], strict=False):
        assert guess["score"] == pytest.approx(expected.probability, abs=1e-5)


@pytest.mark.parametrize(
    ("norm", "pooling", "normalize"),
    [("pre", "cls", True), ("post", "cls", False), ("pre", "mean", False), ("post", "mean", True)],
)
def test_a_model_tuned_for_embeddings_embeds_alike(
    norm, pooling, normalize, with_tokenizer, tmp_path
):
    from sentence_transformers import SentenceTransformer

    tokenizer = Checkpoint.load(with_tokenizer / "ours").tokenizer
    encoder = replace(TINY, vocab_size=tokenizer.vocab_size, norm=norm, max_positions=16)
    ours = Model(ModelConfig(encoder=encoder))
    randomize(ours)
    card = EmbedCard(pooling=pooling, normalize=normalize).to_dict()
    Checkpoint(model=ours, tokenizer=tokenizer, task=card).save(tmp_path / "ours")
    convert_folder(tmp_path / "ours", tmp_path / "theirs")
    assert "1_Pooling/config.json" in verify_folder(tmp_path / "theirs")
    theirs = SentenceTransformer(str(tmp_path / "theirs"), trust_remote_code=True, device="cpu")
    assert theirs.max_seq_length == 16
    expected = litebert.load(tmp_path / "ours").embed(TEXTS)
    assert abs(theirs.encode(TEXTS) - expected).max() < 1e-5
    assert litebert.load(tmp_path / "theirs").embed_card == EmbedCard.from_dict(card)


def test_folder_converts_back_and_loads(with_tokenizer, tmp_path):
    ours = Checkpoint.load(with_tokenizer / "ours")
    convert_folder(with_tokenizer / "theirs", tmp_path / "back")
    for folder in (tmp_path / "back", with_tokenizer / "theirs"):
        checkpoint, _ = load_checkpoint(folder)
        assert checkpoint.model.config == ours.model.config
        assert checkpoint.tokenizer.fingerprint == ours.tokenizer.fingerprint
        for name, tensor in ours.model.state_dict().items():
            assert torch.equal(checkpoint.model.state_dict()[name], tensor)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_task_of_a_fine_tuned_model_goes_along(norm, with_tokenizer, tmp_path):
    """Labels are predicted from another probability than the default on."""
    tokenizer = Checkpoint.load(with_tokenizer / "ours").tokenizer
    encoder = replace(TINY, vocab_size=tokenizer.vocab_size, norm=norm)
    head = HeadConfig(kind="multilabel", labels=("a", "b", "c"))
    ours = Model(ModelConfig(encoder=encoder, heads=(head,)))
    randomize(ours)
    task = Task(
        name="topics", kind="classify", scores=("f1",), labels=head.labels, head="multilabel"
    )
    card = TaskCard(task=task, max_length=16, label_threshold=0.01)
    Checkpoint(model=ours, tokenizer=tokenizer, task=card.to_dict()).save(tmp_path / "ours")
    convert_folder(tmp_path / "ours", tmp_path / "theirs")
    convert_folder(tmp_path / "theirs", tmp_path / "back")
    for folder in ("ours", "theirs", "back"):
        predictor = litebert.load(tmp_path / folder)
        assert predictor.classify("the old dog").labels == ("a", "b", "c")
    assert (tmp_path / "back" / "task.json").read_text() == (
        tmp_path / "ours" / "task.json"
    ).read_text()


def test_no_code_of_a_folder_is_run(tmp_path):
    ours = exported(tmp_path, "masked")
    (tmp_path / MODELING_FILE.name).write_text("raise SystemExit('run!')")
    (tmp_path / "transformers.py").write_text("raise SystemExit('run!')")
    assert_same(tmp_path, ours)


def test_modeling_file_stands_alone():
    tree = ast.parse(MODELING_FILE.read_text())
    imported = {
        (node.module if isinstance(node, ast.ImportFrom) else node.names[0].name).split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert imported <= {
        "collections",
        "dataclasses",
        "functools",
        "typing",
        "torch",
        "transformers",
    }
    assert not any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(tree))


def test_weights_in_bfloat16_are_widened(tmp_path):
    exported(tmp_path, "masked")
    loaded(tmp_path, "AutoModelForMaskedLM").bfloat16().save_pretrained(tmp_path / "b")
    assert "BF16 were widened" in read_huggingface(str(tmp_path / "b")).notes[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"plan": [[0, 0]]}, "plan is not the one that its num_layers and share give"),
        ({"architectures": None}, r"hold the head of a task, and the config names \[None\]"),
        ({"architectures": ["LitebertForMaskedLM"]}, "such as LitebertForSequenceClassification"),
        ({"norm": "both"}, "the config cannot be used: norm"),
        ({"classifier_dropout": 2.0}, "the config cannot be used: dropout"),
        ({"pooler": False}, "the classify head reads the pooled state"),
        ({"hidden_size": 64}, "has shape"),
        ({"share": "none", "plan": [[i, i] for i in range(3)]}, "weights are missing"),
    ],
)
def test_damaged_configs_are_refused(change, message, tmp_path):
    exported(tmp_path, "classify")
    data = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(data | change))
    with pytest.raises(ConversionError, match=message):
        read_huggingface(tmp_path)


def test_mutated_configs_end_in_a_clean_error(tmp_path):
    exported(tmp_path, "classify", encoder=replace(TINY, adapter_rank=1))
    config, random_ = json.loads((tmp_path / "config.json").read_text()), random.Random(5)
    slowest, refused, cases = 0.0, 0, 600
    for _ in range(cases):
        changes = {key: random_.choice(JUNK) for key in random_.sample([*config], 2)}
        (tmp_path / "config.json").write_text(json.dumps(config | changes))
        start = time.process_time()
        try:
            read_huggingface(tmp_path)
        except ConversionError:
            refused += 1
        slowest = max(slowest, time.process_time() - start)
    assert refused > 0.6 * cases
    assert slowest < 10  # CPU seconds; it would be minutes


def test_no_config_makes_us_build_a_large_model(tmp_path):
    exported(tmp_path, "masked", encoder=replace(TINY, adapter_rank=1))
    config = json.loads((tmp_path / "config.json").read_text())
    for change in ({"num_layers": 1000, "layers_per_group": 64}, {"num_layers": 1000}):
        plan = replace(TINY, **change).plan()
        (tmp_path / "config.json").write_text(json.dumps(config | change | {"plan": plan}))
        start = time.process_time()
        with pytest.raises(ConversionError, match="the config asks for"):
            read_huggingface(tmp_path)
        assert time.process_time() - start < 10  # CPU seconds; it would be minutes


def test_heads_of_several_tasks_are_refused():
    heads = (HeadConfig(kind=kind, labels=("a", "b")) for kind in ("classify", "tag"))
    ours = Model(ModelConfig(encoder=TINY, heads=tuple(heads)))
    with pytest.raises(ConversionError, match="has classify, tag: fine-tune a model for each"):
        to_huggingface(ours.config, ours.state_dict())


def test_plain_recipe_needs_no_modeling_file():
    assert why_custom(ModelConfig(encoder=NAMED[PLAIN_RECIPE].encoder)) is None
    assert "norm = pre" in why_custom(ModelConfig(encoder=NAMED["affordable"].encoder))
