"""students: the table of named students; and students of another family than their teacher's."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import transformers

from biosqueeze.models.named.presets import PRESETS
from tests import pico
from tests.layouts import edit_json

POSSIBLE = [name for name, preset in PRESETS.items() if preset.own_family or preset.kept_layers]


def operations(layers: int, hidden: int, ffn: int, length: int = 128) -> int:
    """Return the operations of a BERT's layers per token: projections, scores and weighted sums, FFN."""
    return layers * (8 * hidden**2 + 4 * hidden * length + 4 * hidden * ffn)


def test_all_students_are_listed(shell):
    facts = json.loads(shell("students --json").out)
    rows = {row["name"]: row for row in facts["students"]}
    assert rows.keys() == PRESETS.keys() and not facts["refused"]
    assert rows["bert-mini"]["parameters"] == 11_170_560  # of google/bert_uncased_L-4_H-256_A-4
    expected = operations(4, 256, 1024) / operations(12, 768, 3072)
    assert rows["bert-mini"]["cost"] == pytest.approx(expected)
    assert rows["tiny"]["counted_in"].startswith("weights of huawei-noah/TinyBERT_General_4L_312D")
    assert rows["mobile"]["family"] == "mobilebert" and rows["electra-small"]["source"].startswith("Clark")


def test_counts_that_no_paper_prints_have_a_source(shell, pico_bert):
    said = " ".join(shell("students").out.split())
    assert "electra-small: published with 13.55M parameters (KerasHub's" in said and "minilm-l12: published" not in said
    assert "published with" not in shell("students", pico_bert).out


def test_students_of_a_teacher_have_its_vocabulary(shell, pico_roberta):
    facts = json.loads(shell("students", pico_roberta, "--json").out)
    rows = {row["name"]: row for row in facts["students"]}
    assert {row["vocabulary"] for row in rows.values()} == {len(pico.tokenizer_of("roberta"))}
    assert (rows["tiny"]["family"], rows["electra-small"]["family"]) == ("roberta", "electra")
    assert rows["distil"]["cost"] == pytest.approx(0.5)


def test_a_plan_checks_the_teacher(shell):
    result = shell("students nonexist --dry-run")
    assert result.code == shell("students nonexist").code != 0 and "nonexist" in result.err


def test_a_plan_refuses_a_teacher_that_is_a_decoder(shell, pico_bert, copy_of):
    path = copy_of(pico_bert)
    edit_json(path / "config.json", is_decoder=True)
    result = shell("students", path, "--dry-run")
    assert result.code == shell("students", path).code == 1 and "is a decoder" in result.err


def test_impossible_students_are_named(shell, pico_root):
    teacher = pico.save("mobilebert", pico_root / "teacher-of-none")
    said = shell("students", teacher)
    assert (said.code, said.err) == (0, "")
    assert "tiny: the student tiny defines no bottleneck sizes" in " ".join(said.out.split())
    assert [name for name in PRESETS if f"\n{name} " in said.out] == POSSIBLE


def test_a_missing_teacher_is_explained(shell):
    said = shell("students nowhere")
    assert said.code == 1 and "nowhere" in said.err and not said.out


@pytest.fixture
def narrow(monkeypatch):
    """Students of other families with two narrow layers."""
    for name in ("modernbert-17m", "electra-small", "mobile"):
        shape = PRESETS[name].shape
        sizes = {"layers": 2, "hidden": 8 * shape.heads, "ffn": 32, "embedding": shape.embedding and 16}
        monkeypatch.setitem(PRESETS, name, replace(PRESETS[name], shape=replace(shape, positions=128, **sizes)))


@pytest.mark.parametrize(
    ("student", "name"), [("modernbert-17m", "ModernBertForTokenClassification"), ("mobile", "MobileBertFor")]
)
def test_students_of_other_families_learn(shell, narrow, tmp_path, pico_ner, student, name):
    rows = "".join(f"{word}\tB-Disease\nof\tO\nthe\tO\n\n" for word in ("sepsis", "asthma", "anaemia"))
    for split in ("train", "dev"):
        (tmp_path / f"{split}.tsv").write_text(rows)
    words = ("distill", "--teacher", pico_ner, "--student", student, "--data", tmp_path, "--task", "ner")
    plan = shell(*words, "--dry-run")
    assert plan.code == 0
    said = shell(*words, "--steps", 2, "--precision", "fp32", "--out", "out")
    assert said.code == 0, said.err
    family = PRESETS[student].shape.family
    assert f"{student}: {family} of 2 layers" in said.err and "labels alone, because it is a bert" in said.err
    check_stock(tmp_path / "out", name)


@pytest.mark.parametrize("student", ["modernbert-17m", "mobile", "electra-small"])
def test_planned_sizes_are_those_of_other_families(shell, narrow, pico_ner, student):
    words = ("shrink", pico_ner, "--student", student, "--out", "out", "--json")
    planned, built = shell(*words, "--dry-run"), shell(*words)
    assert planned.code == built.code == 0, planned.err + built.err
    assert json.loads(planned.out)["parameters_after"] == json.loads(built.out)["parameters_after"]


def test_plain_students_of_other_families_learn(shell, narrow, tmp_path, pico_roberta):
    (tmp_path / "text.txt").write_text("\n".join(pico.sentences(40, seed=5)))
    words = ("distill", "--teacher", pico_roberta, "--student", "electra-small", "--corpus", tmp_path / "text.txt")
    said = shell(*words, "--steps", 2, "--precision", "fp32", "--max-length", 32, "--out", "out")
    assert said.code == 0, said.err
    check_stock(tmp_path / "out", "ElectraForMaskedLM")


def check_stock(path: Path, name: str) -> None:
    """Load a checkpoint with stock transformers and run it on a padded batch."""
    architecture = json.loads((path / "config.json").read_text())["architectures"][0]
    assert architecture.startswith(name)
    model, info = getattr(transformers, architecture).from_pretrained(path, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    batch = tokenizer(["sepsis", "asthma of the liver"], padding=True, return_tensors="pt")
    assert model(**batch).logits.isfinite().all()
