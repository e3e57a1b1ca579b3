"""Writing is atomic, histories grow, and a directory that is no checkpoint is explained."""

import errno
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from biosqueeze import card, files, manifest, model_facts
from biosqueeze.checkpoint import open_checkpoint, write_result
from biosqueeze.errors import SqueezeError
from biosqueeze.options import WritingOptions
from biosqueeze.output import StageRecord, derive_out, open_output
from tests.manifests import manifest_json


def copy_through(source: Path, out: Path, **flags: bool) -> Path:
    parent = open_checkpoint(str(source))
    with open_output(out, **flags) as output:
        shutil.copytree(source, output.path, dirs_exist_ok=True)
        return output.finish(
            StageRecord(stage="copy", parent=parent, options=WritingOptions(seed=3), metrics={"f1": 0.5})
        ).path


def test_a_finished_draft_is_whole(pico_bert: Path, tmp_path: Path) -> None:
    out = copy_through(pico_bert, tmp_path / "out")
    entry = json.loads((out / manifest.FILE_NAME).read_text())
    assert entry["parent"] == {"name": str(pico_bert), "sha256": open_checkpoint(str(pico_bert)).weights_sha256()}
    assert entry["model"]["sha256"] == open_checkpoint(str(out)).weights_sha256()
    assert entry["history"][0]["options"]["seed"] == 3
    assert entry["environment"]["packages"]["torch"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]


def test_history_is_append_only(pico_bert: Path, tmp_path: Path) -> None:
    first = copy_through(pico_bert, tmp_path / "first")
    second = copy_through(first, tmp_path / "second")
    earlier, later = (json.loads((p / manifest.FILE_NAME).read_text())["history"] for p in (first, second))
    assert later[:-1] == earlier
    assert later[-1]["parents"]["parent"]["name"] == str(first)


def test_parameters_by_part_agree_with_torch(pico_any: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForMaskedLM, AutoModelForPreTraining

    shapes = model_facts.tensor_shapes(pico_any / "model.safetensors")
    counts = model_facts.count_by_part(shapes)
    auto = AutoModelForPreTraining if "electra" in pico_any.name else AutoModelForMaskedLM
    model = auto.from_pretrained(pico_any)
    assert counts["total"] == sum(p.numel() for p in model.parameters())
    assert all(counts[part] > 0 for part in model_facts.PARTS)
    base = model.base_model
    assert counts["embeddings"] == sum(
        p.numel() for name, p in base.named_parameters() if name.removeprefix("encoder.").startswith("embedding")
    )


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with open_output(tmp_path / "out") as output:
            (output.path / "model.safetensors").write_bytes(b"half")
            raise SqueezeError("no")

    with pytest.raises(SqueezeError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_a_failure_keeps_a_training_state(tmp_path: Path) -> None:
    def fail() -> None:
        with open_output(tmp_path / "out") as output:
            (output.path / "state-00000001").mkdir()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert (tmp_path / "out.partial" / "state-00000001").is_dir()
    with pytest.raises(SqueezeError, match="--resume"), open_output(tmp_path / "out"):
        pass
    with open_output(tmp_path / "out", resume=True) as output:
        assert (output.path / "state-00000001").is_dir()
    with open_output(tmp_path / "out", force=True) as output:
        assert not (output.path / "state-00000001").exists()


def test_an_existing_output_needs_force(pico_bert: Path, tmp_path: Path) -> None:
    out = copy_through(pico_bert, tmp_path / "out")
    (out / "results").mkdir()
    with pytest.raises(SqueezeError, match="--force"):
        copy_through(pico_bert, out)
    assert (out / "results").is_dir()
    copy_through(pico_bert, out, force=True)
    assert not (out / "results").exists()


def test_force_never_deletes_what_is_no_checkpoint(pico_bert: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.tex").write_text("precious")
    with pytest.raises(SqueezeError, match="not a checkpoint"):
        copy_through(pico_bert, tmp_path / "thesis", force=True)
    assert (tmp_path / "thesis" / "chapter1.tex").read_text() == "precious"


def test_two_writers_do_not_meet(tmp_path: Path) -> None:
    with (
        open_output(tmp_path / "out"),
        pytest.raises(SqueezeError, match="another biosqueeze"),
        open_output(tmp_path / "out"),
    ):
        pass


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("./nowhere", "there is no directory"),
        ("demo:berta", "demo:minilm"),
        ("some-org/never-published-model", "neither a directory here nor a model"),
    ],
)
def test_a_missing_checkpoint_is_explained(name: str, says: str) -> None:
    with pytest.raises(SqueezeError, match=says):
        open_checkpoint(name)


def test_incomplete_directories_are_explained(pico_bert: Path, tmp_path: Path) -> None:
    with pytest.raises(SqueezeError, match=r"no config\.json"):
        open_checkpoint(str(tmp_path))
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(SqueezeError, match="not valid JSON"):
        open_checkpoint(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(SqueezeError, match="no weights"):
        open_checkpoint(str(tmp_path))
    with pytest.raises(SqueezeError, match="is a file"):
        open_checkpoint(str(pico_bert / "config.json"))


def test_derived_names_lie_beside_local_inputs(pico_bert: Path) -> None:
    assert derive_out(open_checkpoint(str(pico_bert)), "4l") == pico_bert.parent / "pico-bert-4l"


def test_the_current_directory_has_a_name_too(pico_bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(pico_bert)
    for name in (".", "./"):
        assert derive_out(open_checkpoint(name), "4l") == pico_bert.parent / "pico-bert-4l"


def test_an_interrupt_says_that_a_state_is_there(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt, match="--resume"), open_output(tmp_path / "out") as output:
        (output.path / "state-00000001").mkdir()
        raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt) as caught, open_output(tmp_path / "other"):
        raise KeyboardInterrupt
    assert not caught.value.args


def test_the_card_has_the_hubs_front_matter(pico_ner: Path, tmp_path: Path) -> None:
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
def test_the_card_names_a_parent_that_is_on_the_hub(
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


def test_results_are_left_out_where_we_may_not_write(pico_bert: Path, tmp_path: Path) -> None:
    cached = tmp_path / "snapshots" / "abc"
    shutil.copytree(pico_bert, cached)
    assert write_result(open_checkpoint(str(cached)), "bench", {}) is None
    assert not (cached / "results").exists()


def test_truncated_safetensors_are_seen_in_the_header(pico_bert: Path, tmp_path: Path) -> None:
    whole = (pico_bert / "model.safetensors").read_bytes()
    for size in (4, 100, len(whole) - 10):
        (tmp_path / "cut.safetensors").write_bytes(whole[:size])
        with pytest.raises(SqueezeError, match="damaged or cut short"):
            model_facts.tensor_shapes(tmp_path / "cut.safetensors")


def test_an_input_is_never_overwritten(pico_bert: Path, tmp_path: Path) -> None:
    source = copy_through(pico_bert, tmp_path / "source")
    held = open_checkpoint(str(source))
    with (
        pytest.raises(SqueezeError, match="the input itself"),
        open_output(tmp_path / "x" / ".." / "source", (held,), force=True),
    ):
        pass
    assert held.weights_sha256()


def test_what_holds_an_input_is_never_replaced(pico_bert: Path, tmp_path: Path) -> None:
    source = copy_through(pico_bert, tmp_path / "run" / "checkpoint-5")
    (tmp_path / "run" / "config.json").write_text("{}")
    with (
        pytest.raises(SqueezeError, match="the input itself or contains it"),
        open_output(tmp_path / "run", (open_checkpoint(str(source)),), force=True),
    ):
        pass


def test_a_parent_that_is_gone_at_the_end_loses_no_training(pico_bert: Path, tmp_path: Path) -> None:
    source = copy_through(pico_bert, tmp_path / "source")
    parent = open_checkpoint(str(source))

    def fail() -> None:
        with open_output(tmp_path / "out") as output:
            shutil.copytree(source, output.path, dirs_exist_ok=True)
            (output.path / "state-00000001").mkdir()
            shutil.rmtree(source)
            output.finish(StageRecord(stage="copy", parent=parent, options=WritingOptions()))

    with pytest.raises((SqueezeError, OSError)):
        fail()
    assert (tmp_path / "out.partial" / "state-00000001").is_dir()


def test_what_is_whole_is_kept_though_it_gets_no_name(
    pico_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("biosqueeze.output.publish_directory", refuse)
    with pytest.raises(PermissionError):
        copy_through(pico_bert, tmp_path / "out")
    assert (tmp_path / "out.partial" / manifest.FILE_NAME).is_file()
    assert "out.partial is complete" in " ".join(capfd.readouterr().err.split())


def test_what_a_kill_left_and_links_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "out.former.partial" / "old").mkdir(parents=True)
    for content in ("first", "second"):
        (tmp_path / "out.partial").mkdir()
        (tmp_path / "out.partial" / "file").write_text(content)
        files.publish_directory(tmp_path / "out.partial", tmp_path / "out")
        assert (tmp_path / "out" / "file").read_text() == content
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", "out"]


def test_a_full_disk_keeps_the_training_state(tmp_path: Path) -> None:
    def fail() -> None:
        with open_output(tmp_path / "out") as output:
            (output.path / "state-00000001").mkdir()
            (output.path / "saving").mkdir()
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(SqueezeError, match=r"is full; .* --resume"):
        fail()
    assert sorted(path.name for path in (tmp_path / "out.partial").iterdir()) == [".lock", "state-00000001"]


def test_an_empty_name_is_no_current_directory() -> None:
    with pytest.raises(SqueezeError, match="is empty"):
        open_checkpoint("")


def test_the_card_tells_commands_that_can_be_typed() -> None:
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
