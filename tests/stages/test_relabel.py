"""`relabel`: names for outputs, and the removal of those that are no label."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification

import biosqueeze
from biosqueeze.backends import default_spec
from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.errors import UsageError
from biosqueeze.finetuning.label_names import suggested_tags
from tests import pico
from tests.cli.run import Shell
from tests.layouts import to_bin
from tests.manifests import history_entry, write_manifest

TAGGER, CLASSIFIER = "token-classification", "sequence-classification"
PUBLISHED = ("LABEL_0", "LABEL_1", "LABEL_2")


def _outputs(path: Path, kind: type) -> torch.Tensor:
    """Return the logits of a padded batch by stock transformers."""
    model = kind.from_pretrained(path).eval()
    ids = torch.tensor([[5, 6, 7, 8], [9, 10, 0, 0]])
    with torch.no_grad():
        logits: torch.Tensor = model(input_ids=ids, attention_mask=(ids > 0).long()).logits
    return logits


def test_published_tagger_is_read_after_it_is_named(tmp_path: Path, shell: Shell) -> None:
    path = pico.save("bert", tmp_path / "published", head=TAGGER, labels=PUBLISHED)
    refused = shell("predict", path, "--text", "aspirin")
    assert "biosqueeze relabel CHECKPOINT --labels" in refused.err
    named = shell("relabel", path, "--labels", "O,B-Disease,I-Disease", "--out", tmp_path / "named")
    assert (named.code, named.out) == (0, f"{tmp_path / 'named'}\n"), named.err
    assert open_checkpoint(str(tmp_path / "named")).labels == ("O", "B-Disease", "I-Disease")
    both = (_outputs(each, AutoModelForTokenClassification) for each in (path, tmp_path / "named"))
    torch.testing.assert_close(*both, rtol=0, atol=0)
    predicted = shell("predict", tmp_path / "named", "--text", "aspirin")
    assert predicted.code == 0, predicted.err
    assert {entity["type"] for entity in json.loads(predicted.out)["entities"]} <= {"Disease"}


@pytest.mark.parametrize("family", ["bert", "roberta", "electra", "distilbert", "deberta-v2", "modernbert"])
@pytest.mark.parametrize("head", [TAGGER, CLASSIFIER])
def test_the_remaining_outputs_are_unchanged(family: str, head: str, tmp_path: Path, shell: Shell) -> None:
    path = pico.save(family, tmp_path / "old", head=head, labels=("[PAD]", "O", "B", "X", "I"))
    changed = shell("relabel", path, "--labels", "-,O,B-Gene,-,I-Gene", "--out", tmp_path / "new")
    assert changed.code == 0, changed.err
    kind = AutoModelForTokenClassification if head == TAGGER else AutoModelForSequenceClassification
    before, after = _outputs(path, kind)[..., [1, 2, 4]], _outputs(tmp_path / "new", kind)
    torch.testing.assert_close(after, before, rtol=0, atol=1e-6)
    assert json.loads((tmp_path / "new/config.json").read_text())["label2id"] == {"O": 0, "B-Gene": 1, "I-Gene": 2}


def test_the_record_of_the_task_has_the_new_names(tmp_path: Path, shell: Shell) -> None:
    path = pico.save("bert", tmp_path / "old", head=TAGGER, labels=("B-X", "I-X", "O"))
    write_manifest(path, stage="finetune", task={"name": "ner", "labels": ["B-X", "I-X", "O"], "scheme": "BIO"})
    assert shell("relabel", path, "--labels", "-,I-Gene,O", "--out", tmp_path / "new").code == 0
    task = open_checkpoint(str(tmp_path / "new")).task
    assert task is not None
    assert (task.name, task.labels, task.scheme) == ("ner", ("I-Gene", "O"), "IO")


@pytest.mark.parametrize(("names", "kept"), [("O,I-X,B-X", True), ("O,B-Gene,I-Gene", False), ("O,B-X,-", False)])
def test_data_of_the_former_labels_are_not_recorded(names: str, kept: bool, tmp_path: Path, shell: Shell) -> None:
    path = pico.save("bert", tmp_path / "old", head=TAGGER, labels=("O", "B-X", "I-X"))
    write_manifest(path, task={"name": "ner", "labels": ["O", "B-X", "I-X"], "scheme": "BIO", "data": "demo:ner"})
    assert shell("relabel", path, "--labels", names, "--out", tmp_path / "new").code == 0
    task = open_checkpoint(str(tmp_path / "new")).task
    assert task is not None and task.data == ("demo:ner" if kept else None)
    # By default a width is cut by the data of the task.
    assert shell("shrink", tmp_path / "new", "--ffn", 32, "--dry-run").err.count("demo:ner") == kept


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ("O,B-X", "2 names, and there are 3 outputs: LABEL_0, LABEL_1, LABEL_2; - removes one"),
        ("O,B-X,", "a name is empty"),
        ("O,B-X,B-X", "two names are equal"),
        ("O,-,-", "at least two outputs must remain"),
        ("O,Gene,Disease", "the label 'Gene'; entities are read from tags"),
        ("LABEL_0,LABEL_1,LABEL_2", "LABEL_0, ... are no names"),
        ("B,I,-", "no label O"),
    ],
)
@pytest.mark.parametrize("dry_run", [True, False])
def test_names_that_do_not_fit(names: str, says: str, dry_run: bool, tmp_path: Path, shell: Shell) -> None:
    path = pico.save("bert", tmp_path / "old", head=TAGGER, labels=PUBLISHED)
    words = ["--out", tmp_path / "new", *(["--dry-run"] if dry_run else [])]
    refused = shell("relabel", path, "--labels", names, *words)
    assert refused.code == 2
    assert f"--labels {names}: {says}" in refused.err
    assert not (tmp_path / "new").exists()


def test_options_of_the_task_have_the_new_names(tmp_path: Path, shell: Shell) -> None:
    path = pico.save("bert", tmp_path / "ner", head=TAGGER, labels=("O", "B-Gene", "I-Gene", "B-X", "I-X"))
    write_manifest(path, stage="finetune", task={"name": "ner", "formulation": {"types": ["Gene", "X"]}})
    assert shell("relabel", path, "--labels", "O,B-Protein,I-Protein,-,-", "--out", tmp_path / "new").code == 0
    task = open_checkpoint(str(tmp_path / "new")).task
    assert task is not None and task.formulation == {"types": ["Protein"]}
    path = pico.save("bert", tmp_path / "merged", head=TAGGER, labels=("O", "B", "I"))
    merged = {"name": "ner", "formulation": {"merge_types": True, "types": ["protein", "DNA"]}}
    write_manifest(path, stage="finetune", task=merged)
    assert shell("relabel", path, "--labels", "O,B-Gene,I-Gene", "--out", tmp_path / "typed").code == 0
    task = open_checkpoint(str(tmp_path / "typed")).task
    assert task is not None and task.formulation == {}
    path = pico.save("bert", tmp_path / "re", head=CLASSIFIER, labels=("a", "b", "c"))
    write_manifest(path, stage="finetune", task={"name": "relation", "formulation": {"negative": "a"}})
    for names, negative in (("NEG,up,down", {"negative": "NEG"}), ("-,up,down", {})):
        assert shell("relabel", path, "--labels", names, "--out", tmp_path / "re2", "--force").code == 0
        task = open_checkpoint(str(tmp_path / "re2")).task
        assert task is not None and task.formulation == negative
    assert "is no classifier of texts" in shell("relabel", path, "--multi-label").err


@pytest.mark.parametrize(
    ("names", "negative"),
    [("unrelated pair,up,down", "unrelated pair"), ("x,false,down", "x"), ("no,up,down", None), ("-,up,down", None)],
)
def test_a_renamed_negative_label_stays_one(names: str, negative: str | None, tmp_path: Path, shell: Shell) -> None:
    path = pico.save("bert", tmp_path / "re", head=CLASSIFIER, labels=("false", "up", "down"))
    write_manifest(path, stage="finetune", task={"name": "relation", "labels": ["false", "up", "down"]})
    assert shell("relabel", path, "--labels", names, "--out", tmp_path / "new").code == 0
    task = open_checkpoint(str(tmp_path / "new")).task
    assert task is not None and task.formulation.get("negative") == negative


@pytest.mark.parametrize(
    ("metric", "kept"), [("f1", "f1"), ("f1-Gene", "f1-Protein"), ("f1-X", None), ("f1-Y", "f1-Y")]
)
def test_the_metric_of_a_class_has_its_new_name(metric: str, kept: str, tmp_path: Path, shell: Shell) -> None:
    path = pico.save("bert", tmp_path / "ner", head=TAGGER, labels=("O", "B-Gene", "I-Gene", "B-X", "I-X"))
    write_manifest(path, stage="finetune", task={"name": "ner", "metric": metric})
    assert shell("relabel", path, "--labels", "O,B-Protein,I-Protein,-,-", "--out", tmp_path / "new").code == 0
    task = open_checkpoint(str(tmp_path / "new")).task
    assert task is not None and task.metric == kept


def test_the_metric_of_several_labels_is_one_of_theirs(tmp_path: Path, shell: Shell) -> None:
    path = pico.save("bert", tmp_path / "old", head=CLASSIFIER, labels=("a", "b", "c"))
    write_manifest(path, stage="finetune", task={"name": "classification", "metric": "micro_f1", "scheme": "single"})
    assert shell("relabel", path, "--multi-label", "--out", tmp_path / "new").code == 0
    task = open_checkpoint(str(tmp_path / "new")).task
    assert task is not None and task.metric == "f1"


def test_a_new_name_keeps_the_graphs(pico_ner: Path, tmp_path: Path, shell: Shell) -> None:
    path = shutil.copytree(pico_ner, tmp_path / "tagger")
    old = open_checkpoint(str(path)).labels
    (path / "onnx").mkdir()
    (path / "onnx" / "model.onnx").write_bytes(b"graph")
    names = [name.replace("Disease", "Disorder") for name in old]
    renamed = shell("relabel", path, "--labels", ",".join(names), "--out", tmp_path / "new", "--dry-run")
    assert "B-Disease -> B-Disorder" in renamed.out + renamed.err
    assert "O -> O" not in renamed.out + renamed.err
    assert shell("relabel", path, "--labels", ",".join(names), "--out", tmp_path / "new").code == 0
    assert (tmp_path / "new/onnx/model.onnx").read_bytes() == b"graph"
    assert (tmp_path / "new/model.safetensors").read_bytes() == (path / "model.safetensors").read_bytes()
    less = ",".join(["O", *["-"] * (len(names) - 2), names[-1]])
    removed = shell("relabel", path, "--labels", less, "--out", tmp_path / "less")
    assert "are left out; export it again" in removed.err
    assert not (tmp_path / "less/onnx").exists()


def test_a_new_name_keeps_the_graphs_of_an_old_layout(pico_ner: Path, tmp_path: Path, shell: Shell) -> None:
    path = shutil.copytree(pico_ner, tmp_path / "tagger")
    to_bin(path, load_file(path / "model.safetensors"))
    (path / "onnx").mkdir()
    (path / "onnx" / "model.onnx").write_bytes(b"graph")
    assert shell("relabel", path, "--labels", "O,B-X,I-X", "--out", tmp_path / "new").code == 0
    assert (tmp_path / "new/onnx/model.onnx").read_bytes() == b"graph"


@pytest.mark.parametrize(
    ("head", "task", "words"),
    [
        (TAGGER, None, "--text TEXT"),
        (CLASSIFIER, None, "--task classification --text TEXT"),
        (CLASSIFIER, {"name": "nli"}, "RECORDS.jsonl"),
    ],
)
def test_the_next_command_fits_the_task(head: str, task: object, words: str, tmp_path: Path, shell: Shell) -> None:
    path = pico.save("bert", tmp_path / "old", head=head, labels=("O", "B-X", "I-X"))
    write_manifest(path, stage="finetune", task=task)
    said = shell("relabel", path, "--labels", "O,B-Y,I-Y", "--out", tmp_path / "new")
    assert f"next: biosqueeze predict {tmp_path / 'new'} {words}\n" in said.err


def test_without_labels_there_is_nothing_to_name(pico_bert: Path, tmp_path: Path, shell: Shell) -> None:
    score = pico.save("bert", tmp_path / "score", head=CLASSIFIER, labels=("LABEL_0",))
    for path in (pico_bert, score):
        refused = shell("relabel", path, "--labels", "a,b", "--out", tmp_path / "new")
        assert (refused.code, "and so no labels" in refused.err) == (1, True), refused.err


def test_several_labels_for_a_text(tmp_path: Path, shell: Shell) -> None:
    path = pico.save("bert", tmp_path / "old", head=CLASSIFIER, labels=("a", "b", "c"))
    (tmp_path / "test.tsv").write_text("text\tlabel\ncar ci\ta;b\nhepti\tc\nneu ro\t\n")
    evaluated = shell("evaluate", path, "--data", tmp_path, "--task", "classification")
    assert "biosqueeze relabel" in evaluated.err
    assert evaluated.code == 1
    assert shell("relabel", path, "--multi-label", "--out", tmp_path / "new").code == 0
    assert json.loads((tmp_path / "new/config.json").read_text())["problem_type"] == "multi_label_classification"
    evaluated = shell("evaluate", tmp_path / "new", "--data", tmp_path, "--task", "classification", "--json")
    assert "f1" in json.loads(evaluated.out)["metrics"]
    tagger = pico.save("bert", tmp_path / "tagger", head=TAGGER, labels=("O", "B", "I"))
    assert "is no classifier of texts" in shell("relabel", tagger, "--multi-label", "--out", tmp_path / "no").err
    assert "--labels or --multi-label" in shell("relabel", tagger, "--out", tmp_path / "no").err


def test_a_graph_is_used_after_it_is_relabelled(tmp_path: Path, shell: Shell) -> None:
    path = pico.save("bert", tmp_path / "int8", head=TAGGER, labels=("O", "B-X", "I-X"))
    write_manifest(path, stage="quantize", history=[history_entry(stage="quantize")])
    (path / "onnx").mkdir()
    (path / "onnx/model_quantized.onnx").touch()
    assert shell("relabel", path, "--labels", "O,B-Gene,I-Gene", "--out", tmp_path / "named").code == 0
    assert shell("relabel", path, "--labels", "O,B-Gene,-", "--out", tmp_path / "fewer").code == 0
    found = [default_spec(open_checkpoint(str(tmp_path / name))) for name in ("int8", "named", "fewer")]
    assert found == ["onnxruntime:int8", "onnxruntime:int8", "torch"]


def test_python_takes_a_list_of_names(tmp_path: Path) -> None:
    path = pico.save("bert", tmp_path / "old", head=CLASSIFIER, labels=PUBLISHED)
    result = biosqueeze.relabel(path, labels=["no", "maybe", "yes"], out=tmp_path / "new", quiet=True)
    assert result["labels"] == ["no", "maybe", "yes"]
    with pytest.raises(UsageError, match="'b, c' has a comma"):
        biosqueeze.relabel(path, labels=["a", "b, c"], out=tmp_path / "no", quiet=True)


@pytest.mark.parametrize(
    ("labels", "tags"),
    [
        (("O", "B", "I", "X", "[CLS]", "[SEP]"), ("O", "B", "I", "-", "-", "-")),
        (("0", "B-DISEASE", "I-DISEASE"), ("O", "B-DISEASE", "I-DISEASE")),
        (("O", "DNA", "cell_line"), ("O", "I-DNA", "I-cell_line")),
        (("B_Disease", "I Disease", "O"), ("B-Disease", "I-Disease", "O")),
        (("O", "Disease-B", "Disease-I"), ("O", "B-Disease", "I-Disease")),
        (("o", "b-disease", "i-disease"), ("O", "B-disease", "I-disease")),
        (("o", "b-DNA", "i-DNA"), ("O", "B-DNA", "I-DNA")),
        (("No Disease", "Disease", "Disease Continuation"), ()),
        (("B", "I"), ()),
        (("0", "1", "2"), ()),
        (("O", "LABEL_1", "LABEL_2"), ()),
        (("PAD", "<s>", "O", "B-X"), ("-", "-", "O", "B-X")),
    ],
)
def test_tags_are_suggested(labels: tuple[str, ...], tags: tuple[str, ...]) -> None:
    assert suggested_tags(labels) == tags


def test_a_dash_that_is_no_path_is_taken_as_it_is(pico_ner: Path, shell: Shell) -> None:
    said = shell("relabel - --labels -", stdin=f"{pico_ner}\n")
    assert said.code == 2
    assert "--labels -: 1 names, and there are 3 outputs" in said.err
