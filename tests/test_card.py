"""The model card: front matter for the Hub, results, and the commands that made the checkpoint."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from biosqueeze import card, manifest
from biosqueeze.benchmarks.suite import load_suite, suite_names
from biosqueeze.card import markdown, metadata
from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.options import WritingOptions
from biosqueeze.output import StageRecord, open_output
from tests import pico
from tests.cards import card_of
from tests.cli.run import Shell
from tests.manifests import history_entry, manifest_json


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
    [
        ("dmis-lab/biobert-v1.1", "dmis-lab/biobert-v1.1"),
        ("dmis-lab/biobert-v1.1@main", "dmis-lab/biobert-v1.1"),
        ("bert-base-uncased", "bert-base-uncased"),
        ("here", None),
        ("here/teacher", None),
        ("runs/a/b", None),
        ("~/x", None),
    ],
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
    matter = yaml.safe_load(card.render("x", manifest.parse_manifest(values, "x"), tmp_path).split("---\n", 2)[1])
    assert (matter.get("base_model"), matter["pipeline_tag"]) == (wanted, "text-classification")
    assert matter["model-index"][0]["results"][0]["task"] == {"type": "text-classification"}


def test_a_card_shows_what_a_score_counts() -> None:
    result = {"data": "NCBI", "types": ["Disease", "Drug"], "metric": "f1-Drug"}
    assert metadata.data_shown(result) == "NCBI (types Disease, Drug)"
    assert metadata.data_shown({"data": "NCBI", "merge_types": True}) == "NCBI (types as one)"
    assert metadata.data_shown({"data": "DDI", "negative": "none"}) == "DDI (negative none)"
    assert metadata.data_shown({"data": "NCBI", "types": []}) == "NCBI"
    scores = {"f1": 0.5, "f1-Disease": 0.4, "f1-Drug": 0.6, "mrr": 0.3, "blue_f1": 0.2, "support": 7}
    shown = metadata.main_scores({**result, "metrics": scores})
    assert shown == {"f1": 0.5, "f1-Drug": 0.6, "mrr": 0.3, "blue_f1": 0.2}


@pytest.mark.parametrize("suite", suite_names())
def test_a_card_shows_the_metric_of_every_benchmark(suite: str) -> None:
    assert {benchmark.metric for benchmark in load_suite(suite).benchmarks} <= set(metadata.SCORES)


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
    wanted = "biosqueeze distill --teacher 'a teacher' --weight-decay 0.0 --loss kl=1 --loss mse=2 --out x"
    assert card._command(entry) == wanted
    entry = replace(entry, options={"checkpoint": "a b"})
    assert card._command(entry) == "biosqueeze distill 'a b'"
    entry = replace(entry, stage="quantize", options={"embeddings": False}, sources={"embeddings": "flag"})
    assert card._command(entry) == "biosqueeze quantize --no-embeddings"


def matter_of(text: str) -> dict:
    import yaml

    return yaml.safe_load(text.split("---\n")[1])


def test_a_card_shows_the_speed_of_its_own_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "b" / "student" / "results").mkdir(parents=True)
    rows = [
        {"checkpoint": f"{folder}/student", "backend": folder, "batch_size": 1, "length": 8, "p50_ms": 1.0}
        for folder in "ab"
    ]
    bench = tmp_path / "b" / "student" / "results" / "bench.json"
    bench.write_text(json.dumps({"checkpoint": "b/student", "rows": rows}))
    text = card_of(tmp_path / "b" / "student")
    assert "| b | 1 | 8 |" in text and "| a | 1 | 8 |" not in text
    assert "threads." in text
    bench.write_text(
        json.dumps({"rows": rows, "checkpoint": "b/student", "machine": {"threads": 2, "device": "cuda:0"}})
    )
    assert "with 2 threads, PyTorch on cuda:0." in card_of(tmp_path / "b" / "student")
    rows[1]["p50_ms"], machine = 0.162, {"threads": 1, "cpu": "A Processor"}
    bench.write_text(json.dumps({"rows": rows, "checkpoint": "b/student", "machine": machine}))
    text = card_of(tmp_path / "b" / "student")
    assert "on A Processor with 1 thread." in text and "| b | 1 | 8 | 0.16 |" in text
    bench.write_text(json.dumps({"rows": rows[1:]}))  # of an earlier release
    assert "| b | 1 | 8 |" in card_of(tmp_path / "b" / "student")


@pytest.mark.usefixtures("forked_processes")
def test_evaluate_and_bench_refresh_the_card(pico_ner: Path, copy_of: Callable[[Path], Path], shell: Shell) -> None:
    path = copy_of(pico_ner)
    before = card_of(path, head="token-classification", task={"name": "ner", "data": "demo:ner", "labels": pico.LABELS})
    assert "## Results" not in before
    edited = before.replace("library_name", "language: en\nlibrary_name") + "\n## Limits\n\nMine.\n"
    (path / "README.md").write_text(edited)
    card.refresh(path, manifest.read_manifest(path))
    assert (path / "README.md").read_text() == edited
    (path / "results").mkdir()
    scores = {
        "task": "ner",
        "data": "NCBI",
        "split": "test",
        "backend": "torch",
        "metrics": {"f1": 0.8123, "support": 4},
    }
    (path / "results" / "evaluate-torch.json").write_text(json.dumps(scores))
    assert shell(f"bench {path} --batch-size 1 --length 8 --rounds 1 --seconds 0.01").code == 0
    text = (path / "README.md").read_text()
    assert "| ner | NCBI | test | torch | f1 | 0.8123 |" in text
    assert "| torch | 1 | 8 |" in text
    assert text.endswith("\n## Limits\n\nMine.\n")
    matter = matter_of(text)
    assert matter["language"] == "en"
    (result,) = matter["model-index"][0]["results"]
    assert result["metrics"] == [{"type": "f1", "value": 0.8123}]
    card.refresh(path, manifest.read_manifest(path))
    assert (path / "README.md").read_text() == text


def test_scores_of_other_data_and_backends_stay_apart(pico_ner: Path, copy_of: Callable[[Path], Path]) -> None:
    path = copy_of(pico_ner)
    (path / "results").mkdir()
    measured = {"torch": ("NCBI", 0.8), "onnxruntime": ("NCBI", 0.7), "onnxruntime-int8": ("BC2GM", 0.6)}
    for backend, (data, f1) in measured.items():
        result = {"task": "ner", "data": data, "split": "test", "backend": backend, "metrics": {"f1": f1}}
        (path / "results" / f"evaluate-{backend}.json").write_text(json.dumps(result))
    task = {"name": "ner", "data": "NCBI", "labels": pico.LABELS}
    matter = matter_of(card_of(path, head="token-classification", task=task))
    results = matter["model-index"][0]["results"]
    found = {each["dataset"]["args"]["backend"]: (each["dataset"]["name"], each["metrics"]) for each in results}
    assert found == {backend: (data, [{"type": "f1", "value": f1}]) for backend, (data, f1) in measured.items()}


@pytest.mark.parametrize("text", ["My own card.\n", "<!-- biosqueeze: results -->\nno end\n", ""])
def test_a_card_without_marks_stays(text: str, tmp_path: Path) -> None:
    card_of(tmp_path)
    (tmp_path / "README.md").write_text(text)
    card.refresh(tmp_path, manifest.read_manifest(tmp_path))
    assert (tmp_path / "README.md").read_text() == text


def test_damaged_results_are_left_out_of_the_card(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "evaluate-a.json").write_text("{")
    (tmp_path / "results" / "evaluate-b.json").write_text('{"metrics": {"f1": "high", "recall": NaN}}')
    (tmp_path / "results" / "bench.json").write_text('{"rows": [3, {"checkpoint": 4}], "machine": 1}')
    assert "|" in card_of(tmp_path)


def test_licence_and_base_model_are_those_of_the_parent(tmp_path: Path) -> None:
    (tmp_path / "parent").mkdir()
    front = "license: apache-2.0\nbase_model: google-bert/bert-base-cased\ntags:\n- x"
    (tmp_path / "parent" / "README.md").write_text(f"---\n{front}\n---\n# Parent")
    values = manifest.parse_manifest(manifest_json(), "x")
    matter = matter_of(card.render("x", values, tmp_path, tmp_path / "parent"))
    assert (matter["license"], matter["base_model"]) == ("apache-2.0", "google-bert/bert-base-cased")
    assert "license" not in matter_of(card.render("x", values, tmp_path, tmp_path))


@pytest.mark.parametrize(
    "front",
    [
        "license: [a, b]\nbase_model: 3",
        "license: 'x\n\n  injected: 1'",
        "base_model: ../../etc",
        "license: 'a: b'",
        "a: &a [*a]",
        "[" * 3000,
        "- a",
        "!!python/object/apply:os.system ['true']",
    ],
)
def test_hostile_front_matter_of_a_parent_is_left_out(front: str, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(f"---\n{front}\n---\n")
    assert metadata.read_inherited(tmp_path / "README.md") == {}


def test_nothing_breaks_out_of_the_card(tmp_path: Path) -> None:
    evil = "x\n```\n# Owned\n<script>\n---\nlicense: mit\x1b[31m"
    entry = history_entry(stage=evil, options={"checkpoint": f"{evil}\n`````"}, sources={"checkpoint": "flag"})
    task = {"name": evil, "data": evil, "labels": [evil]}
    text = card_of(tmp_path, evil, history=[entry], task=task, metrics={"f1": 0.5, evil: evil})
    matter = matter_of(text)
    assert "license" not in matter
    assert matter["library_name"] == "transformers"
    assert "\x1b" not in text
    body = text.split("\n---\n", 1)[1]
    fences = re.findall(r"^(`{3,})\w*\n(.*?)\n\1$", body, re.MULTILINE | re.DOTALL)
    outside = re.sub(r"^(`{3,})\w*\n(.*?)\n\1$", "", body, flags=re.MULTILINE | re.DOTALL)
    assert len(fences) == 2
    assert "# Owned" not in outside.replace("\\#", "")
    assert "<script" not in outside.replace("\\<", "")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a_b", "a_b"),
        ("_a_", r"\_a\_"),
        ("[v2]<b>|", r"\[v2\]\<b\>\|"),
        ("a\n# b", r"a \# b"),
        ("\x1b[0m", r"\\x1b\[0m"),
    ],
)
def test_markdown_in_names_is_escaped(text: str, shown: str) -> None:
    assert markdown.escaped(text) == shown
