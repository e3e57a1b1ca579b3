"""Checkpoints are found by name, and what is not a checkpoint is explained."""

import json
import shutil
from pathlib import Path

import pytest

from biosqueeze.backends import files_of
from biosqueeze.checkpoint import copy_files, locate, open_checkpoint, read_result, short_names, write_result
from biosqueeze.errors import SqueezeError
from biosqueeze.finetuning.finetuned_checkpoint import missing_head_error
from biosqueeze.models.loading.detection import detect_head
from tests.manifests import write_manifest


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("./nowhere", "there is no directory"),
        ("bad\udcff", "is not UTF-8; rename it"),
        ("demo:berta", "demo:minilm"),
        ("some-org/never-published-model", "neither a directory here nor a model"),
    ],
)
def test_missing_checkpoint_is_explained(name: str, says: str) -> None:
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


@pytest.mark.parametrize("index", ["model.safetensors.index.json", "pytorch_model.bin.index.json"])
def test_a_plan_needs_no_shards_of_an_index(index: str, pico_bert: Path, tmp_path: Path) -> None:
    """Only the small files are fetched from the Hub for a plan, of which an index is one."""
    (tmp_path / "config.json").write_text((pico_bert / "config.json").read_text())
    shard = index.replace(".", "-00001-of-00002.", 1).removesuffix(".index.json")
    (tmp_path / index).write_text(json.dumps({"weight_map": {"a": shard}}))
    checkpoint = open_checkpoint(str(tmp_path), weights=False)
    assert detect_head(checkpoint, checkpoint.config) == "mlm"
    with pytest.raises(SqueezeError, match=r"lists .*, which is missing"):
        open_checkpoint(str(tmp_path))


def test_commands_in_messages_can_be_typed(pico_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(pico_bert, "my model; x")
    checkpoint = open_checkpoint("my model; x")
    assert checkpoint.quoted_name == "'my model; x'"
    with pytest.raises(SqueezeError, match=r"; first: biosqueeze export 'my model; x'$"):
        files_of(checkpoint, "onnxruntime")
    error = missing_head_error(checkpoint, "task", "ner", "to score")
    assert str(error).endswith("first: biosqueeze finetune 'my model; x' --task ner --data DIRECTORY")


def test_results_are_not_written_to_the_hub_cache(pico_bert: Path, tmp_path: Path) -> None:
    cached = tmp_path / "models--a--b" / "snapshots" / "abc"
    shutil.copytree(pico_bert, cached)
    assert write_result(open_checkpoint(str(cached)), "bench", {}) is None
    assert not (cached / "results").exists()
    own = Path(shutil.copytree(pico_bert, tmp_path / "snapshots" / "abc"))
    assert write_result(open_checkpoint(str(own)), "bench", {}) == own / "results" / "bench.json"


_ON_THE_HUB = (
    *("config.json", "tokenizer.json", "model.safetensors", "pytorch_model.bin", "tf_model.h5", "modules.json"),
    *("1_Pooling/config.json", "onnx/model.onnx", "onnx/model_quantized.onnx", "checkpoint-1/model.safetensors"),
)


@pytest.mark.parametrize(
    ("more", "weights", "fetched"),
    [
        ((), True, {"model.safetensors"}),
        ((), False, set()),
        (("biosqueeze.json",), True, {"model.safetensors", "onnx/model.onnx", "onnx/model_quantized.onnx"}),
        (("biosqueeze.json", "head.safetensors"), False, set()),
    ],
)
def test_what_is_fetched_from_the_hub(
    more: tuple[str, ...], weights: bool, fetched: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    def download(_name: str, revision: str | None, **patterns: list[str]) -> str:
        assert revision is None
        for file in huggingface_hub.utils.filter_repo_objects([*_ON_THE_HUB, *more], **patterns):
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / file).touch()
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert locate("a/b", weights=weights) == tmp_path
    found = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    always = {"config.json", "tokenizer.json", "modules.json", "1_Pooling/config.json", *more}
    assert found == always | fetched


def test_a_revision_on_the_hub(pico_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    asked = set()

    def download(name: str, revision: str | None, **_patterns: list[str]) -> str:
        asked.add((name, revision))
        return str(pico_bert)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    for revision in ("v1.1", "refs/pr/3", "0a1b2c3"):
        checkpoint = open_checkpoint(f"owner/model@{revision}")
        assert (checkpoint.path, checkpoint.short_name) == (pico_bert, "model")
    assert asked == {("owner/model", "v1.1"), ("owner/model", "refs/pr/3"), ("owner/model", "0a1b2c3")}
    shutil.copytree(pico_bert, tmp_path / "model@v2")
    assert open_checkpoint(str(tmp_path / "model@v2")).short_name == "model@v2"
    with pytest.raises(SqueezeError, match="there is no directory"):
        open_checkpoint("owner/model@")


def test_the_checkpoints_of_a_family_are_named(pico_bert: Path, tmp_path: Path) -> None:
    family = tmp_path / "family"
    for member in ("2x", "16x"):
        shutil.copytree(pico_bert, family / member)
    with pytest.raises(SqueezeError, match=f"name one of those in it: {family}/16x, {family}/2x"):
        open_checkpoint(str(family))
    write_manifest(family, stage="shrink", notes={"family": {"2x": {}, "16x": {}}})
    names = f"{family}/2x, {family}/16x"
    with pytest.raises(SqueezeError, match=rf"family holds 2 checkpoints \(shrink --family\); name one: {names}"):
        open_checkpoint(str(family))


def test_empty_name_is_refused() -> None:
    with pytest.raises(SqueezeError, match="is empty"):
        open_checkpoint("")


def test_result_is_read_back(pico_bert: Path, tmp_path: Path) -> None:
    checkpoint = open_checkpoint(str(shutil.copytree(pico_bert, tmp_path / "copy")))
    assert read_result(checkpoint, "bench") is None
    assert write_result(checkpoint, "bench", {"p50": 1}) == tmp_path / "copy" / "results" / "bench.json"
    assert read_result(checkpoint, "bench") == {"p50": 1}


@pytest.mark.parametrize(
    ("names", "labels"),
    [({"1": "B", "0": "A"}, ("A", "B")), ({"0": "LABEL_0", "1": "LABEL_1"}, ()), (None, ())],
)
def test_placeholders_are_no_labels(names: object, labels: tuple[str, ...], pico_bert: Path, tmp_path: Path) -> None:
    shutil.copytree(pico_bert, tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "id2label": names}))
    assert open_checkpoint(str(tmp_path)).labels == labels


def test_copy_leaves_out_manifest_and_results(pico_bert: Path, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    shutil.copytree(pico_bert, source)
    target.mkdir()
    for name in ("onnx", "results", "runs", "elsewhere"):
        (source / name).mkdir()
        (source / name / "file").touch()
    states = ("optimizer.pt", "scheduler.pt", "rng_state_0.pth", "trainer_state.json", "training_args.bin")
    for name in ("README.md", "metrics.jsonl", "report.html", ".lock", *states):
        (source / name).touch()
    copy_files(open_checkpoint(str(source)), target)
    assert {path.name for path in target.iterdir()} == {"onnx", *(path.name for path in pico_bert.iterdir())}


def test_names_are_short_unless_equal() -> None:
    assert short_names(["a/teacher", "student"]) == {"a/teacher": "teacher", "student": "student"}
    assert short_names(["a/x", "b/x"]) == {"a/x": "a/x", "b/x": "b/x"}
    assert short_names(["."]) == {".": Path.cwd().name}
