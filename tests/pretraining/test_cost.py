"""Costs of a pretraining: operations against hand-computed and counted ones, tokens, and what --dry-run prints."""

import gzip
import json
import re
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertConfig

from biosqueeze.errors import UsageError
from biosqueeze.models.families import FAMILIES
from biosqueeze.models.flops import Work, forward_flops, training_flops
from biosqueeze.models.heads import mlm_logits
from biosqueeze.models.loading.load import new_model, skeleton
from biosqueeze.pretraining.replaced_tokens import new_generator
from biosqueeze.stages.pretrain import Options, plan, run
from tests import pico

LENGTH, MASKED = 16, 3


def test_operations_of_bert_base_by_hand():
    model = skeleton(BertConfig(vocab_size=30_522), "BertForPreTraining")
    layer = 2 * (4 * 768 * 768 + 2 * 768 * 3072) * 512 + 4 * 768 * 512 * 512
    head = 2 * (768 * 768 + 768 * 30_522) * 77
    assert forward_flops(model, Work(512, 77)) == 12 * layer + head == pytest.approx(1.003e11, rel=1e-3)
    assert training_flops(model, Work(512, 77, paired=True)) == 3 * (12 * layer + head + 2 * (768 * 768 + 2 * 768))


@pytest.mark.parametrize(
    "family",
    sorted(FAMILIES.keys() - {"longformer"}),
)
def test_operations_equal_those_that_torch_counts(family):
    model = pico.model_of(family, 100, "mlm")
    model.set_attn_implementation("eager")
    ids = torch.arange(5, 5 + LENGTH).unsqueeze(0)
    with FlopCounterMode(display=False) as counter:
        hidden = model.base_model(input_ids=ids).last_hidden_state
        mlm_logits(model, hidden[0, :MASKED]).sum().backward()
    pooler = getattr(model.base_model, "pooler", None) is not None
    ours = training_flops(model, Work(LENGTH, MASKED, paired=False))
    assert not pooler
    rotations = 1e-3 if FAMILIES[family].rotary else 0  # their angles are products too, and are not counted
    assert ours == pytest.approx(counter.get_total_flops(), rel=rotations, abs=0)


@pytest.mark.parametrize(
    ("missing", "given"),
    [
        *((name, {}) for name in ("position_buckets", "pos_att_type", "relative_attention")),
        (None, {"conv_kernel_size": 3}),  # as DeBERTa-v2-xlarge
    ],
)
def test_operations_of_other_debertas(missing, given):
    config = pico.config_of("deberta-v2", 100)
    if missing:
        delattr(config, missing)
    config.update(given)
    model = new_model(config, "DebertaV2Model", seed=0)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(input_ids=torch.arange(5, 5 + LENGTH).unsqueeze(0))
    assert forward_flops(model, Work(LENGTH, masked=0)) == counter.get_total_flops()


@pytest.mark.parametrize("head", ["mlm", "token-classification", "sequence-classification"])
def test_linear_operations_of_a_longformer(head):
    model = pico.model_of("longformer", 100, head)
    ids = torch.arange(5, 5 + LENGTH).unsqueeze(0)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(input_ids=ids)
    counted = counter.get_flop_counts()["Global"][torch.ops.aten.addmm]
    attention = 4 * pico.HIDDEN * LENGTH**2 * pico.LAYERS
    assert forward_flops(model, Work(LENGTH, masked=LENGTH, paired=True)) - attention == counted


def test_operations_of_a_discriminator():
    model = pico.model_of("electra", 100)
    model.set_attn_implementation("eager")
    with FlopCounterMode(display=False) as counter:
        model(input_ids=torch.arange(5, 5 + LENGTH).unsqueeze(0)).logits.sum().backward()
    assert training_flops(model, Work(LENGTH, MASKED)) == counter.get_total_flops()


CLASSIFIERS = ("sequence-classification", "token-classification", "question-answering")


@pytest.mark.parametrize(
    ("family", "head"),
    [(family, head) for family, heads in pico.HEADS_OF.items() for head in heads if head in CLASSIFIERS],
)
def test_operations_of_classifiers(family, head):
    if family == "longformer":
        pytest.skip("what its windows save is not counted")
    model = pico.model_of(family, 100, head)
    model.set_attn_implementation("eager")
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(input_ids=torch.arange(5, 5 + LENGTH).unsqueeze(0))
    ours = forward_flops(model, Work(LENGTH, masked=0, paired=True))
    assert ours == pytest.approx(counter.get_total_flops(), rel=1e-3 if FAMILIES[family].rotary else 0, abs=0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("cost")
    for family in ("bert", "electra"):
        pico.save(family, path / family)
    (path / "text.txt").write_text("\n\n".join("\n".join(pico.sentences(3, seed)) for seed in range(60)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BIOSQUEEZE_CACHE", str(path / "cache"))
        yield path


def _plan(folder: Path, family: str = "bert", **options):
    corpus = (str(folder / "text.txt"),)
    chosen = Options(checkpoint=str(folder / family), corpus=corpus, batch_size=4, out=str(folder / "out"), **options)
    return "\n".join(plan(chosen).steps)


def _number(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    assert found, text
    return float(found[1].replace(",", ""))


@pytest.mark.parametrize(("family", "objective"), [("bert", "mlm"), ("bert", "mlm+nsp"), ("electra", "rtd")])
def test_dry_run_prints_tokens_operations_and_time(folder, family, objective):
    text = _plan(folder, family, objective=objective, steps=10, max_length=32, gpu="h100:8", utilization=0.5)
    tokens, padded = _number(r"tokens: ([\d,]+) in 10 steps", text), _number(r"steps, ([\d,]+) with", text)
    assert 10 * 4 * 8 < tokens <= padded <= 10 * 4 * 32
    flops = _number(r"operations: (\S+) FLOPs", text)
    assert 6 * 4 * 8_000 * padded < flops < 6 * 4 * 30_000 * padded
    # A fast machine takes less than what is told as a number.
    speed = _number(r"time on this machine: (?:about [^,]+|below 0\.1 s), ([\d,]+) tokens/s", text)
    assert ("this machine: below 0.1 s" in text) == (tokens / speed < 0.1)
    assert "time on 8 x H100: below 0.1 s at 50% of their 7,912 TFLOP/s" in text
    assert not (folder / "out").exists()


def test_the_costs_are_those_of_the_given_generator(folder, monkeypatch):
    """Its share of the model's width is that of its own config.json; its weights are not read."""
    generator = new_generator(pico.model_of("electra", len(pico.tokenizer_of("electra"))), share=1.0, seed=0)
    generator.save_pretrained(folder / "generator")
    given = {"objective": "rtd", "generator": str(folder / "generator"), "steps": 2}
    monkeypatch.setattr("biosqueeze.models.loading.load.read_weights", lambda _checkpoint: pytest.fail("weights read"))
    operations = [_plan(folder, "electra", **options) for options in (given, {**given, "generator": None})]
    wide, narrow = (_number(r"operations: (\S+) FLOPs", text) for text in operations)
    assert wide > 1.5 * narrow


def test_long_sequences_and_epochs_in_the_costs(folder):
    short = _plan(folder, steps=10, max_length=32)
    both = _plan(folder, steps=10, max_length=32, long_length=64, long_share=0.5, long_batch_size=4)
    pattern = r"steps, ([\d,]+) with"
    assert _number(pattern, both) == pytest.approx(1.5 * _number(pattern, short), rel=0.05)
    tiny = _plan(folder, steps=10, max_length=32, long_length=64, long_share=0.01, long_batch_size=4)
    assert _number(pattern, tiny) == pytest.approx(1.1 * _number(pattern, short), rel=0.05)  # one step, as in the run
    tokens = _number(r"tokens: ([\d,]+) in", _plan(folder, epochs=2, max_length=32))
    twice = _number(r"tokens: ([\d,]+) in", _plan(folder, epochs=4, max_length=32))
    assert twice == pytest.approx(2 * tokens, rel=0.05)


def test_the_size_of_a_corpus_is_that_of_its_files(folder, monkeypatch):
    whole = _number(r"tokens: ([\d,]+) in", _plan(folder, epochs=2, max_length=32))
    monkeypatch.setattr("biosqueeze.pretraining.cost.SAMPLE_CHARACTERS", 5_000)
    text = _plan(folder, epochs=2, max_length=32)
    assert "estimated from the beginning of the corpus" in text
    assert _number(r"tokens: ([\d,]+) in", text) == pytest.approx(whole, rel=0.1)
    monkeypatch.setattr("biosqueeze.pretraining.cost.corpus_files", lambda _source: ())
    assert "the size of the corpus is unknown; with --steps" in _plan(folder, epochs=2, max_length=32)
    assert "in 5 steps" in _plan(folder, steps=5, max_length=32)


def test_a_held_out_share_of_a_corpus_that_is_read_whole(folder):
    text = _plan(folder, steps=2, max_length=32, held_out=0.1)
    assert "in 2 steps" in text and "estimated from the beginning" not in text


def test_a_single_document_of_a_built_corpus_has_costs(folder, tmp_path):
    shard = {"name": "000000-000.txt.gz", "split": "train"}
    (tmp_path / "corpus.json").write_text(json.dumps({"shards": [shard]}))
    text = "\n".join(pico.sentences(5)) + "\n\n"
    (tmp_path / shard["name"]).write_bytes(gzip.compress(text.encode()))
    options = Options(
        checkpoint=str(folder / "bert"), corpus=(str(tmp_path),), objective="mlm+sop", max_length=32, out="out", steps=2
    )
    assert "in 2 steps" in "\n".join(plan(options).steps)


def test_the_size_of_json_lines_is_that_of_their_texts(folder, tmp_path, monkeypatch):
    texts = [" ".join(pico.sentences(3, seed)) for seed in range(200)]
    lines, records = tmp_path / "a.txt", tmp_path / "a.jsonl"
    lines.write_text("".join(f"{text}\n" for text in texts))
    records.write_text("".join(json.dumps({"note": "x" * 9 * len(text), "body": text}) + "\n" for text in texts))
    monkeypatch.setattr("biosqueeze.pretraining.cost.SAMPLE_CHARACTERS", 10_000)
    tokens = []
    for path, field in ((lines, {}), (records, {"field": "body"})):
        options = {"corpus": (str(path),), "batch_size": 4, "out": str(tmp_path / "out"), "epochs": 2, **field}
        steps = "\n".join(plan(Options(checkpoint=str(folder / "bert"), max_length=32, **options)).steps)
        assert "estimated from the beginning of the corpus" in steps
        tokens.append(_number(r"tokens: ([\d,]+) in", steps))
    assert tokens[1] == pytest.approx(tokens[0], rel=0.05)


def test_a_dry_run_leaves_nothing_in_the_cache(folder, capsys):
    before = sorted((folder / "cache").rglob("*"))
    _plan(folder, steps=10, max_length=24, long_length=40)
    assert sorted((folder / "cache").rglob("*")) == before
    assert capsys.readouterr().err.count("prepared for this run alone") == 2  # once for each length


def test_the_built_in_text_has_costs(folder):
    chosen = Options(checkpoint=str(folder / "bert"), corpus=("demo:text",), steps=2, out=str(folder / "out"))
    assert any("in 2 steps" in line for line in plan(chosen).steps)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("h101", "no 'h101' in the table. Did you mean 'H100'"),
        (":8", "no '' in the table"),
        ("h100:0", "not of the form NAME"),
        ("h100:x", "write for example h100:8"),
    ],
)
def test_gpus_that_do_not_exist(text, message):
    with pytest.raises(UsageError, match=re.escape(message)):
        Options(checkpoint="any", corpus=("any.txt",), gpu=text)


def test_gpus_are_for_dry_runs(folder):
    options = {"checkpoint": str(folder / "bert"), "corpus": (str(folder / "text.txt"),), "out": str(folder / "out")}
    with pytest.raises(UsageError, match="--gpu is for --dry-run"):
        run(Options(**options, gpu="h100"))
