"""Encoders of sentence-transformers stay complete through shrink, distill, export and quantize."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.run import Shell

Shallow = Callable[[str, str], Path]
MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
]


@pytest.fixture
def encoder(pico_bert: Path, copy_of: Callable[[Path], Path]) -> Path:
    """A pico encoder in the layout that sentence-transformers writes."""
    return in_layout(copy_of(pico_bert))


def in_layout(folder: Path) -> Path:
    width = json.loads((folder / "config.json").read_text())["hidden_size"]
    (folder / "modules.json").write_text(json.dumps(MODULES))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 16, "do_lower_case": false}')
    (folder / "config_sentence_transformers.json").write_text('{"__version__": {}}')
    for name in ("1_Pooling", "2_Normalize"):
        (folder / name).mkdir()
    pooling = {"word_embedding_dimension": width, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return folder


def pooling_of(folder: Path) -> dict[str, object]:
    return dict(json.loads((folder / "1_Pooling" / "config.json").read_text()))


COMMANDS = {
    "depth": "shrink {} --layers 2 --out out",
    "width": "shrink {} --heads 2 --out out",
    "export": "export {} --out out",
    "quantize": "quantize {} --out out",
    "distill": "distill {} --teacher {} --corpus demo:text --loss hidden --steps 2 --batch-size 4 --out out",
}


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_the_layout_is_kept(
    shell: Shell, pico_bert: Path, shallow: Shallow, copy_of: Callable[[Path], Path], command: str
) -> None:
    has_graph = command in ("export", "quantize")  # which takes its time per layer
    encoder = in_layout(copy_of(shallow("bert", "mlm") if has_graph else pico_bert))
    result = shell(COMMANDS[command].format(encoder, encoder))
    assert result.code == 0, result.err
    out = Path("out")
    hidden = json.loads((out / "config.json").read_text())["hidden_size"]
    assert pooling_of(out) == {**pooling_of(encoder), "word_embedding_dimension": hidden}
    assert (hidden != pooling_of(encoder)["word_embedding_dimension"]) == (command == "width")
    assert json.loads((out / "modules.json").read_text()) == MODULES
    assert (out / "sentence_bert_config.json").is_file()
    assert (out / "2_Normalize").is_dir()


def test_a_task_head_ends_the_layout(shell: Shell, encoder: Path) -> None:
    command = ["finetune", encoder, "--data", "demo:ner", "--epochs", "0.01", "--out", "out"]
    assert shell(*command).code == 0
    assert not Path("out/modules.json").exists()


def test_a_dense_module_does_not_fit_another_width(shell: Shell, encoder: Path) -> None:
    (encoder / "3_Dense").mkdir()
    (encoder / "3_Dense" / "model.safetensors").write_bytes(b"weights")
    same = shell("shrink", encoder, "--layers", "2", "--out", "same")
    assert same.code == 0, same.err
    assert Path("same/3_Dense/model.safetensors").read_bytes() == b"weights"
    narrow = shell("shrink", encoder, "--heads", "2", "--out", "narrow")
    assert narrow.code == 0, narrow.err
    assert "3_Dense has weights for another hidden size" in narrow.err
    assert not Path("narrow/modules.json").exists()


def test_a_linked_module_is_refused(shell: Shell, encoder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("secret")
    (encoder / "3_Dense").symlink_to(tmp_path / "secret")
    refused = shell("shrink", encoder, "--layers", "2", "--out", "out")
    assert refused.code == 1
    assert "link to a directory" in refused.err
