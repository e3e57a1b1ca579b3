"""shrink with an importance and calibration data, through the command line."""

import json
import shutil
from pathlib import Path
from unittest import mock

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForTokenClassification

from biosqueeze import registry
from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.data.demo import demo_ner
from biosqueeze.importance import FILE
from biosqueeze.importance.store import load_scores
from biosqueeze.models.custom_heads.files import output_type_of, predicts_masked
from tests import pico

LABELS = ("O", "B-Disease", "B-Drug", "B-Gene", "I-Disease", "I-Drug", "I-Gene")
NER = ("--calibration", "demo:ner", "--calibration-tokens", "400")


@pytest.fixture(scope="module")
def ner(tmp_path_factory):
    return pico.save("bert", tmp_path_factory.mktemp("tagger") / "ner", "token-classification", labels=LABELS)


def test_width_by_data_is_repaired_and_stock(shell, ner):
    planned = shell("shrink", ner, "--width", "0.5", *NER, "--out", "small", "--dry-run")
    assert "calibrate on at most 400 tokens of labelled examples from demo:ner" in planned.err
    assert "keep 32 feed-forward neurons in each layer, a multiple of 4 for int8 kernels" in planned.err
    facts = json.loads(shell("shrink", ner, "--width", "0.5", *NER, "--out", "small", "--json").out)
    assert facts["importance"] == "fisher" and facts["repaired"] and facts["tokens"] >= 400
    model = AutoModelForTokenClassification.from_pretrained("small").eval()
    assert (model.config.hidden_size, model.config.intermediate_size) == (16, 32)
    saved = load_scores(open_checkpoint("small"))
    assert saved.importance == "fisher" and saved.layers == (0, 1, 2, 3)
    assert {k: tuple(v.shape) for k, v in saved.scores.items().items()} == {
        "heads": (4, 4),
        "neurons": (4, 64),
        "hidden": (32,),
        "layers": (4,),
    }


def test_layers_and_width_at_once(shell, ner):
    cut = ("--layers", "2", "--ffn", "32", "--importance", "taylor", *NER, "--repair", "none")
    result = shell("shrink", ner, *cut, "--out", "small", "--json")
    facts = json.loads(result.out)
    assert len(facts["layers"]) == 2 and not facts["repaired"]
    assert f"keep layers {facts['layers'][0]}, {facts['layers'][1]}, chosen by taylor" in result.err.splitlines()
    saved = load_scores(open_checkpoint("small"))
    assert saved.layers == tuple(facts["layers"]) == open_checkpoint("small").manifest.history[-1].layers
    assert saved.scores.heads.shape == (2, 4) and saved.scores.layers.shape == (4,)


def test_a_number_of_layers_is_chosen_after_repair(shell, ner):
    cut = ("shrink", ner, "--layers", "3", *NER)
    planned = shell(*cut, "--out", "chosen", "--dry-run").err
    assert "keep 3 of 4 layers: remove the one without which the repaired rest loses least, one at a time" in planned
    result = shell(*cut, "--out", "chosen", "--json")
    facts = json.loads(result.out)
    assert f"keep layers {', '.join(map(str, facts['layers']))}, chosen by loss-after-repair\n" in result.err
    assert "one at a time" not in result.err
    assert facts["repaired"] and "importance" not in {key for key, value in facts.items() if value}
    listed = ",".join(map(str, facts["layers"]))
    shell("shrink", ner, "--layers", listed, *NER, "--out", "listed")
    digests = {open_checkpoint(name).weights_sha256() for name in ("chosen", "listed")}
    assert len(digests) == 1 and facts["layers"][0] == 0


def test_the_losses_of_tried_layers_are_kept(shell, ner):
    facts = json.loads(shell("shrink", ner, "--layers", "3", *NER, "--out", "small", "--json").out)
    (removed,) = {0, 1, 2, 3} - set(facts["layers"])
    saved = load_scores(open_checkpoint("small"))
    assert saved.layers_by == facts["layers_by"] == "loss-after-repair" and set(saved.scores.items()) == {"layers"}
    lost = saved.scores.layers
    assert lost.nan_to_num(nan=torch.inf).argmin() == removed and lost.isnan().tolist() == [True, False, False, False]
    shown = shell("inspect", "small", "--importance", "--json")
    assert json.loads(shown.out)["importance_by"] == {"units": None, "layers": "loss-after-repair"}
    assert json.loads(shown.out)["importance"]["layers"] == [None, *lost[1:].tolist()]


@pytest.mark.parametrize("asked", [60, 400])
def test_too_few_tokens_do_not_repair_by_default(shell, ner, asked):
    Path("few.txt").write_text("aspirin fever heart " * 5 + "\n")
    source = "demo:ner" if asked == 60 else "few.txt"
    few = ("--calibration", source, "--calibration-tokens", asked)
    result = shell("shrink", ner, "--layers", "2", *few, "--out", "spread", "--json")
    assert result.code == 0, result.err
    facts = json.loads(result.out)
    assert "repaired" not in facts and facts["layers"] == [0, 3] and "calibrate on at most" not in result.err
    assert result.err.count("tokens are too few for that, which needs 128 (more --calibration data, or") == 1
    assert result.err.count("tokens are too few to try removals on, which needs 256") == 1
    said = result.err.splitlines()
    assert "repair by least squares" not in said and "one at a time" not in result.err
    assert any(line.startswith("keep layers 0, 3") for line in said)
    plain = shell("shrink", ner, "--layers", "2", "--out", "plain")
    assert open_checkpoint(plain.path).weights_sha256() == open_checkpoint("spread").weights_sha256()


def test_more_tokens_repair_and_a_request_always_does(shell, ner):
    more = ("--calibration", "demo:ner", "--calibration-tokens", "180")
    facts = json.loads(shell("shrink", ner, "--layers", "2", *more, "--out", "repaired", "--json").out)
    assert facts["repaired"] and facts["layers"] == [0, 3] and 128 < facts["tokens"] < 256
    few = ("--calibration", "demo:ner", "--calibration-tokens", "60", "--repair", "least-squares")
    forced = shell("shrink", ner, "--ffn", "32", *few, "--out", "forced", "--json")
    assert json.loads(forced.out)["repaired"] and forced.err.count("it may be worse than what was cut") == 1


def test_a_plan_with_too_few_tokens_promises_no_repair(shell, ner):
    few = ("--calibration", "demo:ner", "--calibration-tokens", "60", "--dry-run")
    said = shell("shrink", ner, "--layers", "2", *few).err
    assert "keep layers 0, 3 of 0 to 3" in said and "not repaired: 60 tokens are too few" in said
    assert "least squares" not in said and "one at a time" not in said
    budget = shell("shrink", ner, "--flops", "0.5", "--calibration", "demo:ner", "--calibration-tokens", "60").err
    assert "the loss after repair decides" not in budget and "not repaired: 60 tokens" in budget


def test_cuts_without_data_say_so_and_what_would_be_better(shell, ner, pico_bert):
    for source, cut in ((pico_bert, ("--width", "0.5")), (ner, ("--params", "20K"))):
        for mode in ([], ["--dry-run"]):
            said = shell("shrink", source, *cut, *mode, "--out", "small", "--force").err
            assert "choose by magnitude, and do not repair: --calibration DATA, of the task or text" in said
    said = shell("shrink", ner, "--layers", "2", "--out", "spread").err
    assert "spread the layers evenly, and do not repair: where no long training follows, --calibration DATA" in said
    assert "evenly" not in shell("shrink", ner, "--layers", "0,2", "--out", "listed").err


def test_a_run_says_how_it_chose_and_repaired(shell, ner):
    cut = ("shrink", ner, "--layers", "3", "--ffn", "32", *NER, "--out", "small")
    planned, ran = (shell(*cut, *mode).err.splitlines() for mode in (["--dry-run"], []))
    said = [
        "calibrate on at most 400 tokens of labelled examples from demo:ner",
        "choose heads, neurons and hidden dimensions by fisher",
        "repair by least squares",
    ]
    assert [line for line in ran if line in said] == said
    assert all(any(line in each for each in planned) for line in said)


def test_same_command_by_data_writes_the_same_weights(shell, ner):
    digests = {
        open_checkpoint(shell("shrink", ner, "--ffn", "32", *NER, "--out", name).path).weights_sha256()
        for name in ("one", "two")
    }
    assert len(digests) == 1


def test_magnitude_without_data_is_the_cut_as_before(shell, ner):
    plain = shell("shrink", ner, "--ffn", "32", "--heads", "2", "--out", "plain").path
    named = shell("shrink", ner, "--ffn", "32", "--heads", "2", "--importance", "magnitude", "--out", "named").path
    assert open_checkpoint(plain).weights_sha256() == open_checkpoint(named).weights_sha256()
    assert (Path(named) / FILE).exists() and not (Path(plain) / FILE).exists()


def test_masked_tokens_of_text_are_a_loss(shell, pico_bert):
    cut = ("--ffn", "32", "--importance", "fisher", "--calibration", "demo:text", "--calibration-tokens", "300")
    facts = json.loads(shell("shrink", pico_bert, *cut, "--out", "small", "--json").out)
    assert facts["repaired"] and facts["importance"] == "fisher"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--ffn", "8", "--importance", "taylor", "--calibration", "demo:text"), "needs the labels of the task"),
        (("--ffn", "8", "--importance", "fisher", "--calibration", "demo:text"), "needs the labels of the task"),
        (("--ffn", "8", "--importance", "wanda"), "needs data"),
        (("--ffn", "8", "--importance", "block-influence", *NER), "scores layers alone"),
        (("--layers", "0,2", "--importance", "wanda", *NER), "has nothing to choose here"),
        (("--hidden", "20", "--repair", "least-squares", *NER), "does not support narrower heads"),
        (("--ffn", "8", "--importance", "magnitude", "--repair", "none", *NER), "has no effect"),
        (("--width", "0.5", "--heads", "2"), "sets all three"),
        (("--ffn", "8", "--importance", "fischer"), "fisher"),
        (("--ffn", "8", "--calibration", "nowhere"), "there is no corpus nowhere"),
    ],
)
def test_impossible_requests_explain_themselves(shell, ner, words, message):
    result = shell("shrink", ner, *words, "--out", "small")
    assert result.code in (1, 2) and message in result.err and not Path("small").exists()


def test_shared_layers_are_not_chosen(shell, tmp_path):
    pico.save("albert", tmp_path / "albert")
    result = shell("shrink", tmp_path / "albert", "--layers", "2", "--calibration", "demo:text", "--out", "small")
    assert result.code == 2 and "share their weights" in result.err


def test_every_importance_has_a_docstring_with_its_source():
    for name in registry.names("importance"):
        module = registry.load("importance", name)
        assert module.__doc__ and module.NEEDS in ("weights", "text", "loss")


@pytest.fixture
def tuned(shell, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pico.save("bert", tmp_path / "base", "base")
    tags = tmp_path / "tags"
    for split, count in (("train", 40), ("dev", 10), ("test", 10)):
        (tags / f"{split}.tsv").parent.mkdir(exist_ok=True)
        rows = (
            "\n".join(f"{word}\t{tag}" for word, tag in zip(words, labels, strict=True))
            for words, labels in demo_ner(split)[:count]
        )
        (tags / f"{split}.tsv").write_text("\n\n".join(rows) + "\n")
    assert shell("finetune base --data tags --steps 2 --out tuned").code == 0
    return Path("tuned")


def test_a_width_is_chosen_by_the_data_of_the_fine_tuning(shell, tuned):
    planned = shell("shrink", tuned, "--ffn", 32, "--calibration-tokens", 300, "--dry-run")
    assert "calibrate on at most 300 tokens of labelled examples from" in planned.err and "repair" in planned.err
    words = ("shrink", tuned, "--ffn", 32, "--calibration-tokens", 300, "--json", "--out")
    facts = json.loads(shell(*words, "by-data").out)
    assert facts["importance"] == "fisher" and facts["repaired"] and facts["tokens"] >= 300
    given = json.loads(shell(*words, "as-given", "--calibration", "tags").out)
    unrepaired = json.loads(shell(*words, "unrepaired", "--repair", "none").out)
    assert unrepaired["importance"] == "fisher" and not unrepaired["repaired"]
    weights = [load_file(f"{name}/model.safetensors") for name in ("by-data", "as-given")]
    assert given["importance"] == "fisher" and all(torch.equal(weights[0][k], weights[1][k]) for k in weights[0])


@pytest.mark.parametrize(
    ("cut", "importance"),
    [
        (("--ffn", 32, "--importance", "magnitude"), "magnitude"),
        (("--layers", 2), None),
    ],
)
def test_other_cuts_read_no_data(shell, tuned, cut, importance):
    facts = json.loads(shell("shrink", tuned, *cut, "--json", "--out", "cut").out)
    assert facts.get("importance") == importance and not facts.get("repaired") and not facts.get("calibration")


def test_data_that_are_gone_are_named(shell, tuned):
    shutil.rmtree("tags")
    result = shell("shrink", tuned, "--ffn", 32, "--json", "--out", "cut")
    assert result.code == 0 and "importance" not in json.loads(result.out)
    assert "choose by magnitude, and do not repair: --calibration DATA" in result.err
    assert "(those of the fine-tuning, tags, are not here)" in result.err


def test_an_importance_names_the_data_that_are_gone(shell, tuned):
    shutil.rmtree("tags")
    result = shell("shrink", tuned, "--ffn", 32, "--importance", "fisher", "--dry-run")
    assert result.code == 2
    assert "the data of its fine-tuning, " in result.err and "are not here; give --calibration" in result.err
    assert "there is no corpus" in shell("shrink", tuned, "--ffn", 32, "--calibration", "tags", "--dry-run").err


def test_a_vocabulary_alone_needs_no_calibration(shell, pico_bert):
    result = shell("shrink", pico_bert, "--vocab-keep", "demo:text", "--calibration", "demo:text")
    assert result.code == 2
    assert "--calibration has no effect where neither layers nor neurons" in result.err


def test_bottlenecks_are_chosen_by_data_without_repair(shell, tmp_path):
    source = pico.save("mobilebert", tmp_path / "mobilebert", "mlm")
    cut = ("shrink", source, "--layers", "2", "--calibration", "demo:text", "--calibration-tokens", "200")
    facts = json.loads(shell(*cut, "--out", "small", "--json").out)
    assert facts["importance"] == "fisher" and not facts["repaired"]
    for extra in ((), ("--dry-run",)):
        result = shell(*cut, "--importance", "wanda", *extra)
        assert result.code == 2
        assert "--importance wanda scores no layers of a mobilebert" in result.err


def test_a_plan_refuses_data_that_the_run_cannot_read(shell, ner):
    Path("tables").mkdir()
    Path("tables", "train.parquet").write_bytes(b"PAR1")
    for extra in ((), ("--dry-run",)):
        result = shell("shrink", ner, "--width", "0.5", "--calibration", "tables", *extra)
        assert result.code == 1 and "train.parquet cannot be read as Parquet" in result.err


def test_labelled_data_of_another_task_are_read_as_text(shell, ner, pico_bert):
    words = list(pico.words()[:8])
    Path("columns").mkdir()
    rows = [f"{word}\t{'O' if number else 'B-X'}\n" for number, word in enumerate(words)]
    Path("columns", "train.txt").write_text("".join(rows) + "\n")
    cut = ("--ffn", "32", "--calibration", "columns", "--calibration-tokens", "10", "--out", "small")
    assert "10 tokens of text of the examples from columns" in shell("shrink", pico_bert, *cut, "--dry-run").err
    result = shell("shrink", pico_bert, *cut, "--json")
    facts = json.loads(result.out)
    assert facts["importance"] == "fisher" and facts["tokens"] < 20 and not facts["repaired"]
    tokenizer = pico.shared_tokenizer()
    assert facts["tokens"] == len(tokenizer(words, is_split_into_words=True)["input_ids"])  # one sentence, no tags
    Path("classes").mkdir()
    Path("classes", "train.tsv").write_text("text\tlabel\n" + "".join(f"{w} and\t{w == words[0]}\n" for w in words))
    result = shell("shrink", ner, "--ffn", "32", "--calibration", "classes", "--out", "other", "--json")
    assert "classes has no labels for" in result.err and json.loads(result.out)["importance"] == "wanda"


@pytest.mark.parametrize(
    ("file", "rows", "message"),
    [
        ("train.tsv", "text\tlabel\na b\tyes\nc d\t\n", "train.tsv:3: no label"),
        ("dev.tsv", "a\tO\nb\tB-Disease\n\n", "data has no train split"),
    ],
)
def test_why_labelled_data_cannot_be_read_is_said(shell, ner, file, rows, message):
    Path("data").mkdir()
    Path("data", file).write_text(rows)
    result = shell("shrink", ner, "--ffn", "32", "--calibration", "data", "--out", "small")
    assert result.code == 1 and message in result.err and not Path("small").exists()


def test_text_in_files_named_as_splits_is_a_corpus(shell, pico_bert):
    Path("corpus").mkdir()
    for split in ("train", "dev"):
        pico.write_sentences(Path("corpus", f"{split}.txt"), 30, seed=len(split))
    cut = ("--ffn", "32", "--calibration", "corpus", "--out", "small", "--dry-run")
    assert "tokens of text from corpus" in shell("shrink", pico_bert, *cut).err


def test_long_examples_are_reported_once(shell, tmp_path):
    source = pico.save("bert", tmp_path / "classifier", "sequence-classification", labels=("no", "yes"))
    rows = [f"{' '.join(pico.sentences(30, seed))}\t{('no', 'yes')[seed % 2]}" for seed in range(200)]
    Path("texts").mkdir()
    for split in ("train", "dev"):
        Path("texts", f"{split}.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    words = ("--calibration", "texts", "--calibration-tokens", "20000")
    result = shell("shrink", source, "--ffn", "32", *words, "--out", "small")
    assert result.code == 0, result.err
    assert result.err.count("are longer than 128 tokens") == 1, result.err
    assert "some inputs are longer than 128 tokens, as in the fine-tuning" in result.err
    assert "--max-length" not in result.err


def test_weights_that_are_not_finite_are_named(shell, ner):
    shutil.copytree(ner, "broken")
    weights = load_file("broken/model.safetensors")
    weights["bert.encoder.layer.2.output.dense.weight"][0, 0] = float("nan")
    save_file(weights, "broken/model.safetensors", metadata={"format": "pt"})
    for cut in (("--width", "0.5"), ("--layers", "2"), ("--params", "20K"), ("--student", "distil")):
        result = shell("shrink", "broken", *cut, *([] if "--student" in cut else NER), "--out", "small")
        assert result.code == 1 and not Path("small.partial").exists()
        assert "broken: bert.encoder.layer." in result.err and "holds NaN or an infinite number" in result.err


def test_calibration_of_listed_layers_without_repair(shell, pico_bert):
    result = shell("shrink", pico_bert, "--layers", "0,2", "--calibration", "demo:text", "--repair", "none")
    assert result.code == 2
    assert "--calibration has no effect with --layers that are listed, and without repair" in result.err


def test_trials_of_layers_do_not_warn(shell, tmp_path):
    with mock.patch.multiple(pico, LAYERS=6):
        source = pico.save("modernbert", tmp_path / "modernbert", "mlm")
    words = ("--calibration", "demo:text", "--calibration-tokens", "200")
    result = shell("shrink", source, "--layers", "3", *words, "--out", "small")
    assert result.code == 0, result.err
    kept = ", ".join(map(str, open_checkpoint("small").manifest.history[-1].layers))
    assert sum("keep their" in line and f"layers {kept} keep" not in line for line in result.err.splitlines()) == 0
    assert result.err.count("warning") <= 1


def test_a_gradual_cut_avoids_the_size_of_the_embeddings(shell, tmp_path):
    source = pico.save("electra", tmp_path / "electra")
    config = open_checkpoint(str(source)).config
    assert config["embedding_size"] == config["hidden_size"] // 2  # two heads, which half of the way would keep
    for start, left, hidden in ((source, 2, 24), ("step-2", 1, 8)):
        result = shell("shrink", start, "--heads", "1", "--steps-of", left, "--out", f"step-{left}")
        assert result.code == 0, result.err
        assert open_checkpoint(f"step-{left}").config["hidden_size"] == hidden


def test_text_without_labels_chooses_by_what_needs_none(shell, ner):
    cut = ("--ffn", "32", "--calibration", "demo:text", "--calibration-tokens", "300", "--out", "small")
    result = shell("shrink", ner, *cut, "--json")
    assert result.code == 0, result.err
    assert json.loads(result.out)["importance"] == "wanda"
    said = shell("shrink", ner, *cut, "--force", "--dry-run").err
    assert "has no labels" in said and "units are chosen by wanda" in said


TEXT = ("--calibration", "demo:text", "--calibration-tokens", "300")


def rewrite_config(path, **changes):
    """Change keys of config.json; None removes one."""
    config = json.loads((path / "config.json").read_text()) | changes
    (path / "config.json").write_text(json.dumps({key: value for key, value in config.items() if value is not None}))


def test_a_named_head_without_weights_predicts_nothing(shell, tmp_path):
    source = pico.save("bert", tmp_path / "headless", "mlm")
    tensors = load_file(source / "model.safetensors")
    encoder = {name: tensor for name, tensor in tensors.items() if not name.startswith("cls.")}
    save_file(encoder, source / "model.safetensors", {"format": "pt"})
    result = shell("shrink", source, "--width", "0.5", *TEXT, "--out", "small", "--json")
    assert result.code == 0, result.err
    assert json.loads(result.out)["importance"] == "wanda" and result.err.count("have no such head") == 1


def test_a_head_that_config_does_not_name_has_a_loss(shell, tmp_path):
    source = pico.save("bert", tmp_path / "unnamed", "mlm")
    rewrite_config(source, architectures=None)
    result = shell("shrink", source, "--width", "0.5", "--importance", "fisher", *TEXT, "--out", "small")
    assert result.code == 0, result.err


@pytest.mark.parametrize("architectures", [None, ["BertForTokenClassification"]])
def test_unnamed_taggers_read_labels(shell, tmp_path, architectures):
    source = pico.save("bert", tmp_path / "unnamed", "token-classification", labels=LABELS)
    rewrite_config(source, architectures=architectures)
    planned = shell("shrink", source, "--width", "0.5", *NER, "--dry-run").err
    assert "labelled examples from demo:ner" in planned and "by fisher" in planned


def test_labels_without_names_are_to_be_named(shell, tmp_path):
    source = pico.save("bert", tmp_path / "tagger", "token-classification", labels=("LABEL_0", "LABEL_1", "LABEL_2"))
    planned = shell("shrink", source, "--width", "0.5", *NER, "--dry-run")
    assert planned.code == 1 and "has no names of its labels" in planned.err


def test_the_output_type_of_an_unnamed_classifier(tmp_path):
    source = pico.save("roberta", tmp_path / "unnamed", "sequence-classification", labels=("no", "yes"))
    rewrite_config(source, architectures=None)
    assert output_type_of(open_checkpoint(str(source))).name == "single"


def test_a_single_output_without_a_problem_type_is_a_score(shell, tmp_path):
    source = pico.save("bert", tmp_path / "cross-encoder", "sequence-classification", labels=("LABEL_0",))
    rewrite_config(source, problem_type=None)
    data, rows = tmp_path / "pairs", list(zip(pico.sentences(20), pico.sentences(20, seed=1), strict=True))
    data.mkdir()
    for split, pairs in (("train", rows[:10]), ("dev", rows[10:])):
        lines = [f"{first}\t{second}\t{number / 2}" for number, (first, second) in enumerate(pairs)]
        (data / f"{split}.tsv").write_text("\n".join(["sentence1\tsentence2\tscore", *lines]))
    result = shell("shrink", source, "--ffn", "32", "--calibration", data, "--out", tmp_path / "out")
    assert result.code == 0, result.err


def test_a_discriminator_predicts_no_masked_tokens(tmp_path):
    for family, head, expected in (("electra", "discriminator", False), ("electra", "mlm", True)):
        assert predicts_masked(open_checkpoint(str(pico.save(family, tmp_path / head, head)))) is expected


@pytest.mark.parametrize("repair", ["auto", "none"])
def test_a_cut_that_cannot_be_repaired_says_so(shell, pico_bert, repair):
    cut = ("--hidden", "16", "--heads", "4", *TEXT, "--repair", repair)
    planned = shell("shrink", pico_bert, *cut, "--dry-run")
    assert planned.code == 0, planned.err
    assert ("not repaired: least squares does not support narrower heads" in planned.err) is (repair == "auto")
    assert "not repaired" not in shell("shrink", pico_bert, "--ffn", "32", *TEXT, "--dry-run").err
