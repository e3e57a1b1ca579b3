"""The model card: front matter for the Hub, and the commands that made the checkpoint."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from biosqueeze import card, manifest
from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.options import WritingOptions
from biosqueeze.output import StageRecord, open_output
from tests.manifests import manifest_json


def test_front_matter_has_task_and_scores(pico_ner: Path, tmp_path: Path) -> None:
    import yaml

    parent = open_checkpoint(str(pico_ner))
    with open_output(tmp_path / "out") as output:
        shutil.copytree(pico_ner, output.path, dirs_exist_ok=True)
        task = manifest.TaskRecord(name="ner", data="NCBI-disease", labels=parent.labels)
        record = StageRecord(
            stage="finetune", parent=parent, options=WritingOptions(), task=task, metrics={"f1": 0.81, "split": "dev"}
        )
        out = output.finish(record).path
    _, front, body = (out / "README.md").read_text().split("---\n", 2)
    matter = yaml.safe_load(front)
    assert matter["library_name"] == "transformers"
    assert matter["pipeline_tag"] == "token-classification"
    result = matter["model-index"][0]["results"][0]
    assert result["dataset"] == {"name": "NCBI-disease", "type": "ner", "split": "dev"}
    assert result["metrics"] == [{"type": "f1", "value": 0.81}]
    assert "biosqueeze" in body


@pytest.mark.parametrize(
    ("parent", "wanted"),
    [("dmis-lab/biobert-v1.1", "dmis-lab/biobert-v1.1"), ("here/teacher", None), ("runs/a/b", None), ("~/x", None)],
)
def test_base_model_is_named_only_if_on_the_hub(
    parent: str, wanted: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import yaml

    monkeypatch.chdir(tmp_path)
    (tmp_path / "here" / "teacher").mkdir(parents=True)
    values = manifest_json(
        head="sequence-classification",
        parent={"name": parent, "sha256": "0"},
        task={"name": "relation"},
        metrics={"f1": 0.5},
    )
    matter = yaml.safe_load(card.render("x", manifest.parse_manifest(values, "x")).split("---\n", 2)[1])
    assert (matter.get("base_model"), matter["pipeline_tag"]) == (wanted, "text-classification")
    assert matter["model-index"][0]["results"][0]["task"] == {"type": "text-classification"}


def test_commands_can_be_typed() -> None:
    options = {
        "teacher": ["a teacher"],
        "checkpoint": None,
        "weight_decay": 0.0,
        "compile": False,
        "resume": True,
        "loss": ["kl=1", "mse=2"],
        "steps": 3,
        "out": "x",
    }
    sources = dict.fromkeys(options, "flag") | {"steps": "default"}
    parents = {"parent": manifest.ParentRef("a", "0")}
    entry = manifest.HistoryEntry(
        stage="distill", version="1", created="", options=options, sources=sources, parents=parents
    )
    wanted = "biosqueeze distill --teacher 'a teacher' --weight-decay 0.0 --loss kl=1 --loss mse=2"
    assert card._command(entry) == wanted
    entry = replace(entry, options={"checkpoint": "a b"})
    assert card._command(entry) == "biosqueeze distill 'a b'"
    entry = replace(entry, stage="quantize", options={"embeddings": False}, sources={"embeddings": "flag"})
    assert card._command(entry) == "biosqueeze quantize --no-embeddings"
