"""The stages as Python functions: same options, rules and results as the commands, and no side effects."""

import ast
import inspect
import json
import logging
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertForTokenClassification

import biosqueeze
from biosqueeze import registry
from biosqueeze.api import STAGES, Result, options_of, visible_fields
from biosqueeze.api.stub import STUB, stub
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.options import Argument
from tests.cli.run import Shell

ARGUMENTS = {"checkpoint": "model", "data": "data"}


@pytest.fixture(autouse=True)
def _in_temporary_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_package_lists_every_stage() -> None:
    assert set(STAGES) == set(biosqueeze.__all__) - {"__version__"}
    assert set(STAGES) <= set(dir(biosqueeze))
    with pytest.raises(AttributeError, match="shirnk"):
        _ = biosqueeze.shirnk


def test_the_stub_is_up_to_date() -> None:
    generated, written = (ast.dump(ast.parse(text)) for text in (stub(), STUB.read_text()))
    assert generated == written, "run python -m biosqueeze.api.stub"


def test_the_stub_takes_what_the_functions_take() -> None:
    functions = {node.name: node for node in ast.parse(stub()).body if isinstance(node, ast.FunctionDef)}

    def annotated(function: str, name: str) -> str:
        arguments = functions[function].args
        found = next(each for each in (*arguments.args, *arguments.kwonlyargs) if each.arg == name)
        return ast.unparse(found.annotation) if found.annotation else ""

    for function, name in (("finetune", "grid"), ("evaluate", "min"), ("distill", "loss"), ("predict", "column")):
        assert "Mapping[str, object]" in annotated(function, name)
    for function, name in (("shrink", "params"), ("pretrain", "mask_rate")):
        assert "float" in annotated(function, name)


@pytest.mark.parametrize("name", STAGES)
def test_documentation_names_no_pipe_of_paths(name: str) -> None:
    assert "path on standard input" not in getattr(biosqueeze, name).__doc__


def test_an_unknown_keyword_gets_the_one_that_is_meant() -> None:
    with pytest.raises(TypeError, match=r"^finetune\(\) .* 'learning_rate'. Did you mean 'lr'\?$"):
        biosqueeze.finetune("x", data="y", learning_rate=1e-4)
    with pytest.raises(TypeError, match=r"^shrink\(\) missing a required argument: 'checkpoint'$"):
        biosqueeze.shrink()


@pytest.mark.parametrize("name", STAGES)
def test_signatures_have_the_options_of_the_command(name: str) -> None:
    parameters = inspect.signature(getattr(biosqueeze, name)).parameters
    fields = visible_fields(registry.load("stages", name))
    assert list(parameters) == [*(field.name for field in fields), "quiet"]
    for field in fields:
        by_position = parameters[field.name].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        assert by_position == (field.marker(Argument) is not None)
        assert field.required or parameters[field.name].default == field.default


def test_results_equal_those_of_the_command(pico_bert: Path, shell: Shell) -> None:
    result = biosqueeze.shrink(pico_bert, layers=2, ffn=32, out=Path("small"))
    printed = json.loads(shell("shrink", pico_bert, "--layers", 2, "--ffn", 32, "--out", "same", "--json").out)
    assert json.loads(json.dumps({**result, "path": "same"}, default=str)) == printed
    assert (result.path, result["path"], os.fspath(result)) == (Path("small"), "small", "small")
    assert result.parameters_after < result.parameters_before
    weights = [Path(name, "model.safetensors").read_bytes() for name in ("small", "same")]
    assert weights[0] == weights[1]
    sources = json.loads(Path("small/biosqueeze.json").read_text())["history"][-1]["sources"]
    assert (sources["layers"], sources["heads"]) == ("python", "default")


def test_predictions_are_computed_as_they_are_read(pico_ner: Path, capfd: pytest.CaptureFixture[str]) -> None:
    Path("records.jsonl").write_text('{"id": "a", "text": "sepsis"}\n{"id": "b", "text": "the lupus"}\n')
    result = biosqueeze.predict(pico_ner, "records.jsonl", quiet=True)
    assert [prediction["id"] for prediction in result.predictions] == ["a", "b"]
    assert capfd.readouterr().out == ""


def test_line_ends_of_unicode_in_predictions(pico_ner: Path) -> None:
    text = "lupus\u0085x\u2028sepsis"
    Path("records.jsonl").write_text(json.dumps({"id": text, "text": text}))
    result = biosqueeze.predict(pico_ner, "records.jsonl", keep_fields=True, quiet=True)
    assert [prediction["record"]["text"] for prediction in result.predictions] == [text]


def test_predictions_in_a_file_are_not_in_the_result(pico_ner: Path) -> None:
    result = biosqueeze.predict(pico_ner, text=("sepsis",), out="entities.jsonl", quiet=True)
    with pytest.raises(UsageError, match=r"without `out` has predictions in its result; this one wrote entities.jsonl"):
        next(result.predictions)


def test_predictions_in_pubtator_are_read_from_lines(pico_ner: Path) -> None:
    Path("records.jsonl").write_text('{"id": "a", "text": "sepsis"}\n')
    with pytest.raises(UsageError, match="read from `lines`"):
        list(biosqueeze.predict(pico_ner, "records.jsonl", format="pubtator", quiet=True).predictions)


def test_a_dict_is_converted(pico_ner: Path) -> None:
    Path("records.jsonl").write_text('{"pmid": "7", "abstract": "sepsis"}\n')
    result = biosqueeze.predict(pico_ner, "records.jsonl", column={"id": "pmid", "text": "abstract"}, quiet=True)
    assert [prediction["id"] for prediction in result.predictions] == ["7"]


@pytest.mark.usefixtures("forked_processes")
def test_values_are_converted(pico_bert: Path, copy_of: Callable[[Path], Path]) -> None:
    checkpoint = copy_of(pico_bert)  # bench adds its results
    result = biosqueeze.bench([checkpoint], batch_size=(1, 2), length=8, rounds=1, seconds=0.01, warmup=1, quiet=True)
    assert [row["batch_size"] for row in result.rows] == [1, 2]


def test_lists_in_a_dict_are_the_values_of_a_grid() -> None:
    options = options_of(registry.load("stages", "finetune"), ARGUMENTS | {"grid": {"lr": [1e-4, 3e-4], "steps": 9}})
    assert options.grid == ("lr=0.0001,0.0003", "steps=9")


def test_parts_of_an_article_may_be_a_list() -> None:
    options = options_of(registry.load("stages", "corpus"), {"inputs": "a.xml", "keep": ["title", "abstract"]})
    assert (options.inputs, options.keep) == (("a.xml",), "title,abstract")


def test_numbers_of_numpy_are_numbers() -> None:
    arguments = ARGUMENTS | {"seed": np.int64(3), "lr": np.float32(0.5)}
    options = options_of(registry.load("stages", "finetune"), arguments)
    assert (options.seed, type(options.seed), options.lr, type(options.lr)) == (3, int, 0.5, float)


def test_an_empty_list_of_what_is_needed_is_refused() -> None:
    with pytest.raises(UsageError, match="--teacher is empty, and at least one value is needed"):
        biosqueeze.distill(student="distil", teacher=[], data="data")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "nothing to do"),
        ({"layers": 2, "student": "tiny"}, "--layers cannot be combined with --student"),
        ({"layers": 2, "seed": -1}, "--seed must be at least 0"),
        ({"ffn": "many"}, "--ffn must be a whole number"),
        ({"layers": True}, "--layers must be a text, not True"),
        ({"out": 3.5j}, "--out must be a text, not 3.5j"),
        ({"force": "no"}, "--force must be True or False, not 'no'"),
        ({"layers": 2, "seed": None}, "--seed is None, and a value is needed"),
    ],
)
def test_rules_are_those_of_the_command(options: dict[str, object], message: str, pico_bert: Path) -> None:
    with pytest.raises(UsageError, match=message):
        biosqueeze.shrink(pico_bert, **options)


def test_errors_are_raised(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SqueezeError, match="there is no directory"):
        biosqueeze.inspect("./nowhere")
    with pytest.raises(UsageError, match="CHECKPOINT is None, and a value is needed"):
        biosqueeze.inspect(None)
    with pytest.raises(TypeError, match="layer"):
        biosqueeze.shrink("x", layer=2)
    assert capfd.readouterr().out == ""


def test_several_processes_are_refused(pico_bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        with pytest.raises(UsageError, match=r"^`shrink` runs in one process, and 2 were started"):
            biosqueeze.shrink(pico_bert, layers=2, out="small")


def test_nothing_of_the_process_changes(pico_bert: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def settings() -> tuple[object, ...]:
        return dict(os.environ), list(warnings.filters), logging.root.manager.disable, sys.stdout, Path.cwd()

    before = settings()
    biosqueeze.shrink(pico_bert, layers="2", out="small")
    assert settings() == before
    assert capfd.readouterr().out == ""


def test_threads_of_the_process_stay_its_own(pico_ner: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    former, during = torch.get_num_threads(), list[int]()
    compute = BertForTokenClassification.forward

    def forward(*args: Any, **inputs: Any) -> Any:
        during.append(torch.get_num_threads())
        return compute(*args, **inputs)

    monkeypatch.setattr(BertForTokenClassification, "forward", forward)
    other = 1 if former > 1 else 2
    list(biosqueeze.predict(pico_ner, text=("sepsis",), backend="torch", threads=other, quiet=True).predictions)
    assert set(during) == {other}
    assert torch.get_num_threads() == former


def test_importing_the_package_is_cheap() -> None:
    heavy = "{'torch', 'transformers', 'numpy', 'click', 'rich', 'onnx', 'huggingface_hub'}"
    code = f"import sys, biosqueeze; sys.exit(','.join({heavy} & set(sys.modules)) or 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_result_is_a_mapping() -> None:
    result = Result(Path("there"), {"f1": 0.5})
    assert dict(result) == {"path": "there", "f1": 0.5}
    assert result.f1 == 0.5
    with pytest.raises(AttributeError, match="f2"):
        _ = result.f2


def test_a_tilde_is_the_home_directory(pico_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    result = biosqueeze.shrink(str(pico_bert), layers="2", out="~/small", quiet=True)
    assert Path(result.path) == tmp_path / "home" / "small"
    assert (tmp_path / "home" / "small" / "config.json").is_file()
    with pytest.raises(UsageError, match="--out is empty"):
        biosqueeze.shrink(str(pico_bert), layers="2", out="")


@pytest.mark.parametrize(("layers", "text"), [([1], "1,"), ([0, 2], "0,2"), (1, "1"), (["top"], "top")])
def test_a_list_of_one_layer_is_that_layer(layers: object, text: str) -> None:
    options = options_of(registry.load("stages", "shrink"), {"checkpoint": "model", "layers": layers})
    assert vars(options)["layers"] == text
