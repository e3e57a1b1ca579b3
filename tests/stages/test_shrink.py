"""shrink: every family and head through the command line, stock outputs, and errors that leave nothing behind."""

import json
from pathlib import Path

import pytest
import torch
import transformers
from transformers import AutoModel, AutoTokenizer

from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.models.loading.load import load_model
from biosqueeze.models.named.presets import PRESETS
from tests import pico
from tests.layouts import edit_json


def stock(path):
    """The checkpoint as stock transformers loads it: by its own class, and by AutoModel."""
    name = json.loads((Path(path) / "config.json").read_text())["architectures"][0]
    model, info = getattr(transformers, name).from_pretrained(path, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]
    trunk, info = AutoModel.from_pretrained(path, output_loading_info=True)
    assert all(key.startswith("pooler.") for key in info["missing_keys"])
    assert not any(".layer." in key or "embeddings" in key for key in info["unexpected_keys"])
    assert trunk.config.hidden_size == model.config.hidden_size
    return model.eval()


def refused(path, cut):
    """Whether it is a family that keeps its width, or its heads cannot be cut to three: two share a key."""
    if path.name == "any-eurobert" and cut == ["--heads", "3"]:
        return True
    return path.name in ("any-albert", "any-mobilebert") and any(
        word in cut for word in ("--ffn", "--heads", "--hidden")
    )


@pytest.mark.parametrize("cut", [["--layers", "2"], ["--ffn", "40"], ["--heads", "3"], ["--student", "distil"]])
def test_every_family_in_its_published_layout(shell, pico_any, cut):
    result = shell("shrink", pico_any, *cut, "--out", "small")
    if refused(pico_any, cut):
        assert result.code == 2 and "; give --" in result.err and not Path("small").exists()
        return
    assert result.code == 0, result.err
    assert result.path == "small"
    model = stock("small")
    source = open_checkpoint(str(pico_any))
    assert type(model).__name__ == source.config["architectures"][0]
    before = sum(p.numel() for p in load_model(source).model.parameters())
    after = sum(p.numel() for p in model.parameters())
    assert after == before if "albert" in pico_any.name else after < before  # an ALBERT's layers share their weights
    text = "BRCA1 mutation of Hepatitis"
    assert AutoTokenizer.from_pretrained("small")(text) == AutoTokenizer.from_pretrained(pico_any)(text)


def test_all_cuts_at_once(shell, pico_bert):
    result = shell("shrink", pico_bert, "--layers", "0,3", "--ffn", "16", "--hidden", "16", "--out", "small", "--json")
    facts = json.loads(result.out)
    model = stock("small")
    config = model.config
    assert (config.num_hidden_layers, config.num_attention_heads) == (2, 2)
    assert (config.hidden_size, config.intermediate_size) == (16, 16)
    assert facts["layers"] == [0, 3] and facts["parameters_after"] == sum(p.numel() for p in model.parameters())
    assert max(facts["differences"].values()) < 1e-4
    assert {"layers", "keeping 16 ffn neurons", "keeping 2 heads", "stock model"} == set(facts["differences"])
    assert "layers 0, 3 of 0 to 3" in result.err


def test_token_classifier_keeps_its_head(shell, pico_ner):
    path = shell("shrink", pico_ner, "--layers", "top", "--heads", "2").path
    model = stock(path)
    assert type(model).__name__ == "BertForTokenClassification"
    assert tuple(model.config.id2label.values()) == pico.LABELS
    assert open_checkpoint(path).labels == pico.LABELS


@pytest.mark.parametrize(
    "cut", [["--layers", "2"], ["--layers", "0,1", "--ffn", "8"], ["--hidden", "8"], ["--student", "distil"]]
)
def test_plan_counts_the_parameters_of_the_run(shell, pico_any, cut):
    if "electra" in str(pico_any) and "--hidden" in cut:
        cut = ["--hidden", "24"]
    if "eurobert" in str(pico_any) and "--hidden" in cut:
        cut = ["--hidden", "16"]  # two query heads share a key
    if refused(pico_any, cut):
        assert shell("shrink", pico_any, *cut, "--out", "small", "--dry-run").code == 2
        return
    planned = json.loads(shell("shrink", pico_any, *cut, "--out", "small", "--dry-run", "--json").out)
    assert not Path("small").exists()
    written = json.loads(shell("shrink", pico_any, *cut, "--out", "small", "--json").out)
    assert planned["parameters_before"] == written["parameters_before"]
    assert planned["parameters_after"] == written["parameters_after"]
    assert open_checkpoint("small").manifest.model.parameters["total"] == written["parameters_after"]


def test_plan_needs_no_weights(shell, pico_bert, tmp_path):
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "config.json").write_bytes((pico_bert / "config.json").read_bytes())
    result = shell("shrink bare --heads 2 --dry-run")
    assert result.code == 0
    assert "keep 2 of 4 heads: hidden size 16" in result.err and result.out == ""


def test_plan_and_run_warn_of_an_irregular_attention(shell, tmp_path):
    source = pico.save("modernbert", tmp_path / "source")
    for words in (("--layers", "1,3"), ("--student", "compact")):
        for mode in (["--dry-run"], []):
            result = shell("shrink", source, *words, "--out", f"small{words[1]}", *mode)
            assert result.code == 0 and " ".join(result.err.split()).count("keep --layers 0,3") == 1


def test_output_is_named_after_the_cut(shell, pico_root, tmp_path):
    pico.save("bert", tmp_path / "teacher")
    assert Path(shell("shrink teacher --layers 0,2 --ffn 32").path).name == "teacher-l0_2-f32"
    assert Path(shell("shrink teacher --student distil").path).name == "teacher-distil"


def test_same_command_writes_the_same_bytes(shell, pico_bert):
    def digest(name, *more):
        shell("shrink", pico_bert, "--student", "tiny", "--out", name, *more)
        return open_checkpoint(name).weights_sha256()

    assert digest("one") == digest("two") != digest("three", "--seed", "1")


def test_missing_pooler_depends_on_the_seed(shell, pico_bert, copy_of):
    path = copy_of(pico_bert)
    edit_json(path / "config.json", architectures=["BertModel"])

    def pooler(seed):
        result = shell("shrink", path, "--layers", "1", "--seed", seed, "--out", f"s{seed}")
        assert "pooler" in result.err
        return stock(result.path).pooler.dense.weight

    assert not torch.equal(pooler(1), pooler(2))


def test_manifest_has_the_whole_history(shell, pico_bert):
    first = shell("shrink", pico_bert, "--layers", "3", "--out", "first").path
    shell("shrink", first, "--ffn", "32", "--out", "second")
    manifest = open_checkpoint("second").manifest
    assert [entry.stage for entry in manifest.history] == ["shrink", "shrink"]
    assert manifest.parent.sha256 == open_checkpoint(first).weights_sha256()
    assert manifest.history[0].options["layers"] == "3"
    assert manifest.model.shape.layers == 3 and manifest.model.shape.ffn == 32


def test_two_cuts_in_a_pipe(shell, pico_bert):
    first = shell("shrink", pico_bert, "--layers", "2", "--out", "first")
    second = shell("shrink - --ffn 32 --out second", stdin=first.out)
    assert stock(second.path).config.num_hidden_layers == 2


def test_biobert_v11_by_its_name(shell, biobert_v11):
    result = shell("shrink dmis-lab/biobert-v1.1 --layers 2 --out small")
    assert result.code == 0, result.err
    assert "capitals" in result.err
    model = stock(result.path)
    assert type(model).__name__ == "BertModel" and model.config.num_hidden_layers == 2
    assert AutoTokenizer.from_pretrained(result.path).tokenize("BRCA1") == ["BRCA", "##1"]
    parent = open_checkpoint(result.path).manifest.parent
    assert parent.name == "dmis-lab/biobert-v1.1"
    assert "base_model: dmis-lab/biobert-v1.1" in (Path(result.path) / "README.md").read_text()
    assert shell("shrink dmis-lab/biobert-v1.1 --student tiny").path == "biobert-v1.1-tiny"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "nothing to do: give --layers"),
        (["--student", "tiny", "--layers", "2"], "--layers cannot be combined with --student"),
        (["--student", "tinny"], "Did you mean 'tiny'?"),
        (["--layers", "5"], "from 1 to 4"),
        (["--layers", "0,4"], "no layer 4"),
        (["--layers", "2,1"], "did you mean 1,2?"),
        (["--layers", "1,1"], "lists layer 1 more than once; give 1, (with the comma)"),
        (["--layers", "some"], "neither a number"),
        (["--layers", "4"], "nothing would be cut"),
        (["--ffn", "64", "--heads", "4"], "nothing would be cut"),
        (["--ffn", "100"], "from 1 to 64"),
        (["--heads", "9"], "from 1 to 4"),
        (["--hidden", "21"], "possible with fewer heads: 8, 16, 24"),
        (["--heads", "2", "--hidden", "24"], "2 heads of at most 8 dimensions"),
    ],
)
@pytest.mark.parametrize("mode", [[], ["--dry-run"]])
def test_invalid_options(shell, pico_bert, words, message, mode):
    result = shell("shrink", pico_bert, *words, *mode, "--out", "small")
    assert result.code == 2
    assert message in result.err and len(result.err.strip().splitlines()) == 1
    assert result.out == "" and not list(Path().iterdir())


def test_tokenizer_of_another_model(shell, pico_bert, copy_of):
    path = copy_of(pico_bert)
    tokenizer = AutoTokenizer.from_pretrained(path)
    tokenizer.add_tokens(["newword"])
    tokenizer.save_pretrained(path)
    for words in (["--layers", "2"], ["--student", "tiny"]):
        result = shell("shrink", path, *words, "--out", "small")
        assert result.code == 1
        assert "are of different models" in result.err.strip().splitlines()[-1]
        assert not Path("small").exists() and not Path("small.partial").exists()


def test_weights_cut_short_leave_nothing(shell, pico_bert, copy_of):
    path = copy_of(pico_bert)
    file = path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    result = shell("shrink", path, "--layers", "2", "--out", "small")
    assert result.code == 1 and "cut short" in result.err
    assert not Path("small").exists() and not Path("small.partial").exists()


def test_existing_output_is_kept(shell, pico_bert):
    shell("shrink", pico_bert, "--layers", "2", "--out", "small")
    before = open_checkpoint("small").weights_sha256()
    assert shell("shrink", pico_bert, "--layers", "3", "--out", "small").code == 1
    assert open_checkpoint("small").weights_sha256() == before
    assert shell("shrink", pico_bert, "--layers", "3", "--out", "small", "--force").code == 0
    assert stock("small").config.num_hidden_layers == 3


def test_help_lists_every_student(shell):
    result = "".join(shell("shrink --help").out.split())
    assert all(name in result for name in PRESETS)
