"""Damaged and hostile files of a checkpoint, by command line: one line that names the file, nothing written."""

import json
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch

from tests.cli.run import Said, Shell
from tests.layouts import edit_json, to_bin

DEEP = "[" * 50_000 + "]" * 50_000
DIGITS = "9" * 5_000
COMMANDS = {
    "inspect": (),
    "shrink": ("--layers", "1", "--out", "out"),
    "predict": ("in.txt", "--backend", "torch", "--out", "out"),
}
Files = Callable[[Path], Path]


@pytest.fixture
def fails(shell: Shell, tmp_path: Path) -> Callable[..., Said]:
    """Run a command on a checkpoint: it must fail with one line of explanation, and write nothing."""

    def run(command: str, path: Path, *more: str, says: str) -> Said:
        (tmp_path / "in.txt").write_text("the sepsis syndrome\n")
        before = sorted(tmp_path.rglob("*"))
        said = shell(command, path, *COMMANDS.get(command, ("--out", "out")), *more)
        assert said.code == 1, said.err
        lines = [line for line in said.err.splitlines() if line.startswith(("error: ", "bug: ", "Traceback"))]
        assert len(lines) == 1 and lines[0].startswith("error: ")
        assert says in lines[0]
        assert len(lines[0]) < 1_000
        assert sorted(tmp_path.rglob("*")) == before
        return said

    return run


# ------------------------------------------------------------------ JSON

NO_JSON = {
    "empty": ("", "is not valid JSON"),
    "a list": ("[]", "holds a list, a JSON object was expected"),
    "deep": (f'{{"a": {DEEP}}}', "nested too deeply"),
    "less deep": ('{"a":' * 150 + "1" + "}" * 150, "nested too deeply"),
    "digits": (f'{{"a": {DIGITS}}}', "is not valid JSON ("),
    "half": ('{"a": ', "is not valid JSON"),
    "too large": ('{"a": "' + "x" * (1 << 24) + '"}', "has 16,777,225 bytes, at most "),
}


@pytest.mark.parametrize("content", NO_JSON)
@pytest.mark.parametrize("file", ["config.json", "biosqueeze.json"])
def test_no_json(file: str, content: str, pico_ner: Path, copy_of: Files, fails: Callable[..., Said]) -> None:
    path = copy_of(pico_ner)
    text, says = NO_JSON[content]
    (path / file).write_text(text)
    fails("inspect", path, says=says)
    fails("shrink", path, "--dry-run", says=f"{path / file} ")


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("tokenizer_config.json", {"model_max_length": "long"}, "model_max_length is a string, a number was expected"),
        ("tokenizer_config.json", {"model_max_length": float("nan")}, "model_max_length is nan, a number of tokens"),
        ("tokenizer_config.json", {"model_max_length": 10**4000}, "model_max_length is an integer of 13,288 bits"),
        ("tokenizer_config.json", {"pad_token": 3}, "pad_token is an integer, a string was expected"),
        ("tokenizer_config.json", {"cls_token": {"content": []}}, "cls_token.content is a list, a string was expected"),
        ("tokenizer_config.json", {"mask_token": "\ud800"}, "mask_token is not valid text"),
        ("special_tokens_map.json", {"unk_token": {}}, "unk_token.content is missing, a string was expected"),
        ("special_tokens_map.json", [], "holds a list, a JSON object was expected"),
    ],
)
@pytest.mark.parametrize("command", ["shrink", "predict", "inspect", "shrink --dry-run", "predict --dry-run"])
def test_tokenizer_settings(
    command: str, name: str, value: Any, says: str, pico_ner: Path, copy_of: Files, fails: Callable[..., Said]
) -> None:
    path = copy_of(pico_ner)
    (path / name).write_text(json.dumps(value))
    name, *more = command.split()
    fails(name, path, *more, says=says)


def _set(path: Sequence[str | int], value: Any) -> Callable[[dict[str, Any]], None]:
    def change(content: dict[str, Any]) -> None:
        place: Any = content
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            _set(["model", "vocab", "the"], 10**9),
            "tokenizer.json has ids up to 1,000,000,000, more than any vocabulary",
        ),
        (_set(["model", "vocab", "the"], -1), "tokenizer.json is not a valid tokenizer"),
        (_set(["model", "vocab", "the"], 10**30), "tokenizer.json is not a valid tokenizer"),
        (_set(["post_processor", "cls", 1], 10**9), "ids up to 1,000,000,000"),
        (_set(["model", "vocab"], {}), "of this model into its directory"),
        (_set(["model", "type"], []), "tokenizer.json is not a valid tokenizer"),
        (_set(["normalizer"], 3), "tokenizer.json is not a valid tokenizer"),
    ],
)
@pytest.mark.parametrize("command", ["shrink", "predict", "inspect", "shrink --dry-run", "predict --dry-run"])
def test_tokenizers(
    command: str,
    change: Callable[[dict[str, Any]], None],
    says: str,
    pico_ner: Path,
    copy_of: Files,
    fails: Callable[..., Said],
) -> None:
    path = copy_of(pico_ner)
    content = json.loads((path / "tokenizer.json").read_text())
    change(content)
    (path / "tokenizer.json").write_text(json.dumps(content))
    name, *more = command.split()
    fails(name, path, *more, says=says)


# ------------------------------------------------------------------ weights

QUERY = "bert.encoder.layer.0.attention.self.query.weight"


def _with_header(change: Callable[[dict[str, Any]], Any]) -> Callable[[bytes], bytes]:
    def build(content: bytes) -> bytes:
        (length,) = struct.unpack("<Q", content[:8])
        header = json.loads(content[8 : 8 + length])
        changed = json.dumps(change(header) or header).encode()
        return struct.pack("<Q", len(changed)) + changed + content[8 + length :]

    return build


HEADERS: dict[str, Callable[[bytes], bytes]] = {
    "length of 2^63": lambda content: struct.pack("<Q", 1 << 63) + content[8:],
    "length of 1": lambda content: struct.pack("<Q", 1) + content[8:],
    "eight bytes": lambda content: content[:8],
    "one byte more": lambda content: content + b"x",
    "a deep header": lambda content: struct.pack("<Q", 100_000) + DEEP.encode(),
    "a negative shape": _with_header(lambda header: header[QUERY].update(shape=[-32, -32])),
    "a huge shape": _with_header(lambda header: header[QUERY].update(shape=[1 << 63, 2])),
    "an unknown type": _with_header(lambda header: header[QUERY].update(dtype="X9")),
    "no type": _with_header(lambda header: header[QUERY].update(dtype=None)),
    "offsets backwards": _with_header(lambda header: header[QUERY].update(data_offsets=[4096, 0])),
    "offsets beyond the end": _with_header(lambda header: header[QUERY].update(data_offsets=[0, 10**12])),
    "a tensor twice": _with_header(lambda header: {**header, "again": header[QUERY]}),
    "a hole": _with_header(lambda header: {k: v for k, v in header.items() if k != QUERY}),
    "metadata of numbers": _with_header(lambda header: header.update(__metadata__={"a": 1})),
}


@pytest.mark.parametrize("case", HEADERS)
def test_safetensors_headers(case: str, pico_ner: Path, copy_of: Files, fails: Callable[..., Said]) -> None:
    file = copy_of(pico_ner) / "model.safetensors"
    file.write_bytes(HEADERS[case](file.read_bytes()))
    fails("inspect", file.parent, says=f"{file} is damaged or cut short; fetch or copy it again")
    fails("shrink", file.parent, "--dry-run", says=f"{file} is damaged or cut short; fetch or copy it again")


def test_a_bin_of_repeated_values(pico_ner: Path, copy_of: Files, fails: Callable[..., Said]) -> None:
    path = copy_of(pico_ner)
    to_bin(path, {"bert.embeddings.word_embeddings.weight": torch.zeros(1).expand(1 << 20, 1 << 16)})
    fails("shrink", path, says="is larger than its values in the file, so it was not loaded")


def test_sizes_that_only_loading_compares(pico_ner: Path, copy_of: Files, fails: Callable[..., Said]) -> None:
    path = copy_of(pico_ner)
    edit_json(path / "config.json", id2label={str(i): f"B-L{i}" if i else "O" for i in range(60_000)}, label2id={})
    fails("predict", path, says="classifier.bias is 3 in the weights and 60,000 by config.json")


# ------------------------------------------------------------------ ONNX


def _external(location: str) -> Callable[[bytes], bytes]:
    def build(content: bytes) -> bytes:
        model = onnx.load_from_string(content)
        tensor = model.graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=location)
        return model.SerializeToString()

    return build


def _other_input(content: bytes) -> bytes:
    model = onnx.load_from_string(content)
    old, model.graph.input[0].name = model.graph.input[0].name, "pixels"
    for node in model.graph.node:
        node.input[:] = ["pixels" if name == old else name for name in node.input]
    return model.SerializeToString()


def _with_loop(content: bytes) -> bytes:
    model = onnx.load_from_string(content)
    kind = onnx.TensorProto
    values = {name: onnx.helper.make_tensor_value_info(name, kind.BOOL, []) for name in ("going", "on")}
    count = onnx.helper.make_tensor_value_info("count", kind.INT64, [])
    step = onnx.helper.make_node("Identity", ["going"], ["on"])
    body = onnx.helper.make_graph([step], "body", [count, values["going"]], [values["on"]])
    model.graph.initializer.append(onnx.helper.make_tensor("times", kind.INT64, [], [1 << 60]))
    model.graph.initializer.append(onnx.helper.make_tensor("true", kind.BOOL, [], [True]))
    model.graph.node.append(onnx.helper.make_node("Loop", ["times", "true"], [], body=body))
    return model.SerializeToString()


def _with_giant(content: bytes) -> bytes:
    """Add a constant of 40,000 x 40,000 elements; its shape is computed too."""
    model = onnx.load_from_string(content)
    for name, side in (("one", 200), ("other", 200)):
        model.graph.initializer.append(onnx.helper.make_tensor(name, onnx.TensorProto.INT64, [2], [side, side]))
    model.graph.node.append(onnx.helper.make_node("Mul", ["one", "other"], ["shape"]))
    model.graph.node.append(onnx.helper.make_node("ConstantOfShape", ["shape"], ["giant"]))
    return model.SerializeToString()


def _with_function(content: bytes) -> bytes:
    model = onnx.load_from_string(content)
    node = onnx.helper.make_node("Identity", ["x"], ["y"])
    opset = [onnx.helper.make_opsetid("", 20)]
    model.functions.append(onnx.helper.make_function("own", "f", ["x"], ["y"], [node], opset))
    return model.SerializeToString()


GRAPHS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "half": lambda content: content[: len(content) // 2],
    "text": lambda content: b"hello",
    "data elsewhere": _external("/etc/passwd"),
    "data above": _external("../config.json"),
    "missing data": _external("none.data"),
    "another input": _other_input,
}
BOMBS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "loop": (_with_loop, "holds the subgraph of a node Loop"),
    "function": (_with_function, "holds a function"),
    "giant": (_with_giant, "computes 'giant' with 1,600,000,000 elements"),
}


@pytest.mark.parametrize("case", GRAPHS)
def test_graphs(
    case: str, exported: Callable[[str, str], Path], copy_of: Files, fails: Callable[..., Said], shell: Shell
) -> None:
    path = copy_of(exported("bert", "token-classification"))
    file = path / "onnx" / "model.onnx"
    file.write_bytes(GRAPHS[case](file.read_bytes()))
    fails("quantize", path, says=str(file))
    said = shell("predict", path, "in.txt", "--backend", "onnxruntime")
    assert said.code == 1 and said.err.splitlines()[-1].startswith("error: ") and str(file) in said.err


@pytest.mark.parametrize("case", ["loop", "function", "giant"])
def test_graphs_without_bounds(
    case: str, exported: Callable[[str, str], Path], copy_of: Files, fails: Callable[..., Said]
) -> None:
    path = copy_of(exported("bert", "token-classification"))
    file = path / "onnx" / "model.onnx"
    damage, says = BOMBS[case]
    file.write_bytes(damage(file.read_bytes()))
    fails("quantize", path, says=f"{file} {says}")
    fails("predict", path, "--backend", "onnxruntime", says=f"{file} {says}")


# ------------------------------------------------------------------ vocabularies

MERGES: dict[str, tuple[bytes, str]] = {
    "one word": (b"word\n", "are no tokenizer ("),
    "unknown pieces": (b"zzzz qqqq\n", "are no tokenizer ("),
    "no text": (b"\xff\xfe", "is not UTF-8"),
    "too large": (b"a b\n" * (5 << 20), "has 20,971,520 bytes, at most "),
}


@pytest.mark.parametrize("case", MERGES)
def test_merges(case: str, pico_roberta: Path, copy_of: Files, fails: Callable[..., Said]) -> None:
    path = copy_of(pico_roberta)
    core = json.loads((path / "tokenizer.json").read_text())["model"]
    (path / "tokenizer.json").unlink()
    (path / "vocab.json").write_text(json.dumps(core["vocab"]))
    content, says = MERGES[case]
    (path / "merges.txt").write_bytes(content)
    fails("shrink", path, says=says)


def test_a_large_vocabulary(pico_bert: Path, copy_of: Files, fails: Callable[..., Said]) -> None:
    path = copy_of(pico_bert)
    (path / "tokenizer.json").unlink()
    (path / "vocab.txt").write_bytes(b"word\n" * (4 << 20))
    for command in ("shrink", "inspect"):
        fails(command, path, says=f"{path / 'vocab.txt'} has 20,971,520 bytes, at most ")
