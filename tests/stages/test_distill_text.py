"""The stage distill on plain text: every family, teachers without a head, and what is printed and saved."""

import json
import shutil
from pathlib import Path

import pytest
from transformers import AutoModel, AutoModelForMaskedLM

from tests import pico
from tests.cli.run import Shell
from tests.metrics_log import read_log
from tests.stages.distilling import QUICK


def test_task_agnostic_losses_fall(pico_bert: Path, text: Path, shell: Shell) -> None:
    result = shell(
        "distill --teacher",
        pico_bert,
        "--student",
        "tiny",
        "--loss",
        "distilbert",
        "--corpus",
        text,
        "--steps",
        24,
        "--lr",
        "3e-3",
        "--out",
        "student",
        *QUICK,
    )
    assert result.code == 0, result.err
    steps = read_log(Path(result.path))
    first, last = (
        {k: sum(s[k] for s in part) / 5 for k in ("mlm", "kl", "cosine")} for part in (steps[:5], steps[-5:])
    )
    assert last["cosine"] < 0.6 * first["cosine"]
    assert last["mlm"] < 0.95 * first["mlm"]
    _, info = AutoModelForMaskedLM.from_pretrained(result.path, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]


def test_a_tagger_distilled_on_text_has_no_task(ner: str, tags: Path, text: Path, shell: Shell) -> None:
    quick = ("--steps", 1, "--precision", "fp32", "--max-length", 24)
    assert shell("finetune", ner, "--data", tags, *quick, "--out", "tagger").code == 0
    plain = pico.save("bert", Path("plain"), head="mlm")
    said = shell("distill tagger --teacher", plain, "--corpus", text, *quick, "--out", "out")
    assert said.code == 0, said.err
    assert said.err.splitlines()[-1] == "next: biosqueeze finetune out --data DIRECTORY"
    manifest = json.loads(Path("out/biosqueeze.json").read_text())
    assert (manifest["head"], manifest["task"]) == ("mlm", None)
    assert "- ner" not in Path("out/README.md").read_text()


def test_shrunk_student_in_a_pipe(pico_bert: Path, text: Path, shell: Shell) -> None:
    shrunk = shell("shrink", pico_bert, "--layers", "every-other", "--out", "half")
    result = shell("distill - --teacher", pico_bert, "--corpus", text, "--steps", 4, "--json", *QUICK, stdin=shrunk.out)
    assert result.code == 0, result.err
    facts = json.loads(result.out)
    assert facts["path"] == "half-distilled"
    assert facts["metrics"]["steps"] == 4
    manifest = json.loads(Path("half-distilled/biosqueeze.json").read_text())
    assert [entry["stage"] for entry in manifest["history"]] == ["shrink", "distill"]
    assert set(manifest["history"][-1]["parents"]) == {"parent", "teacher"}
    assert manifest["history"][-1]["sources"]["steps"] == "flag"


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("family", ["bert", "roberta", "electra", "distilbert", "albert", "mobilebert", "modernbert"])
def test_every_family_distils(family: str, precision: str, text: Path, tmp_path: Path, shell: Shell) -> None:
    teacher = pico.save(family, tmp_path / "teacher", head="mlm")
    result = shell(
        "distill --teacher", teacher, "--student", "distil", "--corpus", text, "--steps", 2, *QUICK,
        "--precision", precision,
    )  # fmt: skip
    assert result.code == 0, result.err
    assert "kl" in read_log(Path(result.path))[-1]


def test_electra_discriminator_gets_a_head(pico_electra: Path, text: Path, shell: Shell) -> None:
    """The losses of the student's paper read a distribution that the discriminator lacks; others need no head."""
    words = ("distill --teacher", pico_electra, "--student", "distil", "--corpus", text, "--steps", 2, *QUICK)
    result = shell(*words, "--out", "x")
    assert result.code == 0, result.err
    assert "one is fitted first" in result.err
    assert set(read_log(Path(result.path))[-1]) >= {"mlm", "cosine", "kl"}
    headless = (*words, "--loss", "mlm=1", "--loss", "cosine=1")
    result = shell(*headless, "--out", "y")
    assert result.code == 0, result.err
    assert "fitted" not in result.err
    assert "kl" not in read_log(Path(result.path))[-1]
    idle = shell(*headless, "--temperature", 4, "--out", "z")
    assert (idle.code, "--temperature has no effect on the losses mlm, cosine" in idle.err) == (2, True), idle.err


def test_warning_without_a_corpus(pico_bert: Path, shell: Shell) -> None:
    result = shell("distill --teacher", pico_bert, "--student", "distil", "--steps", 1, "--out", "x", *QUICK)
    assert result.code == 0, result.err
    assert "sample" in result.err
    assert "warning" in result.err
    assert "`biosqueeze corpus" in result.err


def test_dry_run_reads_no_weights(pico_bert: Path, tmp_path: Path, shell: Shell) -> None:
    for name in ("config.json", "tokenizer.json"):
        shutil.copy(pico_bert / name, tmp_path / name)
    result = shell("distill --teacher", tmp_path, "--student", "distil", "--dry-run", "--json")
    assert result.code == 0, result.err
    plan = json.loads(result.out)
    assert plan["parameters_after"] < plan["parameters_before"]


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_unreadable_text_is_an_error_in_the_plan(dry: tuple[str, ...], pico_bert: Path, shell: Shell) -> None:
    Path("records.jsonl").write_text('{"abstract": "the gene"}\n')
    Path("blank.txt").write_text("\n\n")
    words = ("distill --student distil --steps 1 --out x --teacher", pico_bert, *QUICK, *dry, "--corpus")
    for corpus, says in {"records.jsonl": "no field 'text'; name the field", "blank.txt": "is empty"}.items():
        result = shell(*words, "demo:text", "--corpus", corpus)
        assert (result.code, says in result.err) == (1, True), result.err
    assert not list(Path().glob("x*"))


def test_lines_of_a_document_are_joined(pico_bert: Path, shell: Shell) -> None:
    Path("articles.txt").write_text("the cells\nof the gene\n\nthe protein\nin patients\n\n")
    words = ("distill --student distil --steps 1 --corpus articles.txt --precision fp32 --teacher", pico_bert)
    assert "corpus: 4 texts" in shell(*words, "--out", "lines").err
    assert "corpus: 2 texts" in shell(*words, "--documents", "--out", "documents").err


def test_teacher_without_label_names(pico_root: Path, text: Path, shell: Shell) -> None:
    placeholders = [f"LABEL_{number}" for number in range(3)]
    teacher = pico.save("bert", pico_root / "unnamed", head="token-classification", labels=placeholders)
    student = pico.save("bert", pico_root / "plain-student", head="base")
    words = ("distill", student, "--teacher", teacher, "--corpus", text, "--steps", 1, *QUICK)
    result = shell(*words, "--out", "student")
    assert result.code == 0, result.err
    assert len(json.loads(Path("student/config.json").read_text())["id2label"]) == 3
    other = pico.save("bert", pico_root / "two", head="token-classification", labels=placeholders[:2])
    result = shell(*words, "--teacher", other, "--out", "x")
    assert (result.code, "student and teachers have 3, 3, 2 as num_labels" in result.err) == (1, True), result.err


def test_untrained_head_is_not_saved(pico_bert: Path, text: Path, shell: Shell) -> None:
    result = shell(
        "distill --teacher", pico_bert, "--student", "tiny", "--corpus", text, "--loss", "minilmv2", "--steps", 2,
        "--out", "small", *QUICK,
    )  # fmt: skip
    assert result.code == 0, result.err
    assert "without a head" in result.err
    assert json.loads(Path("small/config.json").read_text())["architectures"] == ["BertModel"]
    _, info = AutoModel.from_pretrained("small", output_loading_info=True)
    assert not info["missing_keys"]
