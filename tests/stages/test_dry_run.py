"""--dry-run refuses what the run would refuse before its work, with the same words and the same exit code."""

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import transformers

from biosqueeze.distillation.losses.presets import formula
from tests import pico
from tests.cli.run import Shell
from tests.tasks.sources import write_data

TAGS = "sepsis\tB-Disease\nsyndrome\tI-Disease\n,\tO\n\nthe\tO\nlupus\tB-Disease\n"
FOREIGN = TAGS.replace("Disease", "Drug")


@pytest.fixture
def here(tmp_path: Path, pico_bert: Path, pico_ner: Path) -> Path:
    """A directory with checkpoints, data of the tagger's labels, of others and of scores, and a text."""
    shutil.copytree(pico_bert, tmp_path / "plain")
    shutil.copytree(pico_ner, tmp_path / "tuned")
    shutil.copytree(pico_ner, tmp_path / "cut")
    (tmp_path / "cut" / "tokenizer.json").write_text("{")
    shutil.copytree(pico_ner, tmp_path / "chooser")
    config = (tmp_path / "chooser" / "config.json").read_text()
    (tmp_path / "chooser" / "config.json").write_text(config.replace("TokenClassification", "MultipleChoice"))
    pico.save("roberta", tmp_path / "roberta")
    pico.save("albert", tmp_path / "albert")
    pico.save("albert", tmp_path / "albert-tuned", head="token-classification", labels=("O", "B-Disease", "I-Disease"))
    pico.save("bert", tmp_path / "scorer", head="sequence-classification", labels=("score",))
    (tmp_path / "pairs").mkdir()
    write_data(tmp_path / "pairs", "similarity")
    for name, text in (("data", TAGS), ("foreign", FOREIGN)):
        (tmp_path / name).mkdir()
        for number, split in enumerate(("train", "dev", "test")):
            (tmp_path / name / f"{split}.tsv").write_text(f"case{number}\tO\n{text}")
    for fold in ("1", "2"):
        shutil.copytree(tmp_path / "data", tmp_path / "folds" / fold)
    (tmp_path / "folds" / "2" / "test.tsv").unlink()
    (tmp_path / "begun.runs" / "lr=0.001").mkdir(parents=True)
    record = {"options": {"lr": 0.001, "steps": 7}, "dev": {}, "test": None}
    (tmp_path / "begun.runs" / "lr=0.001" / "seed-0.json").write_text(json.dumps(record))
    (tmp_path / "begun.runs" / "search.json").write_text("{}")
    (tmp_path / "text.txt").write_text("A text.\n")
    (tmp_path / "other").mkdir()
    shutil.copytree(tmp_path / "data", tmp_path / "kept" / "data")
    (tmp_path / "kept" / "text.txt").write_text("A text.\n")
    (tmp_path / "kept" / "config.json").write_text("{}")
    (tmp_path / "other" / "notes").write_text("?")
    return tmp_path


REFUSED = [
    "shrink plain --layers 2 --out plain",
    "shrink plain --layers 2 --out .",
    "shrink plain --layers 13",
    "shrink plain --layers 0,9",
    "shrink plain --ffn 100000",
    "shrink plain --student tinny",
    "shrink plain --layers 2 --out text.txt/x",
    "shrink plain --layers 2 --out other --force",
    "shrink missing --layers 2",
    "shrink plain --layers 2 --calibration-tokens 5",
    "shrink plain --student tiny --calibration-tokens 5",
    "export tuned --out tuned",
    "export tuned --out text.txt/x",
    "export cut",
    "quantize tuned --out tuned",
    "quantize cut",
    "quantize tuned --out other --force",
    "quantize tuned --calibration missing.txt --method inc-static",
    "finetune plain --data data --out plain",
    "finetune plain --data missing",
    "finetune plain --data data --task token-classification",
    "finetune plain --data data --metric recal",
    "finetune plain --data data --resume",
    "finetune plain --data data --tracker wandb",
    "finetune plain --data data --grid lrr=1",
    "finetune plain --data data --folds",
    "finetune plain --data data --types Drug",
    "finetune plain --data data --reinit-layers 9",
    "finetune plain --data data --hours 1",
    "finetune plain --data missing --task ner --grid lr=1e-3,1e-4",
    "finetune plain --data data --task ner --metric recal --seeds 2",
    "finetune plain --data data --task ner --reinit-layers 9 --seeds 2",
    "finetune plain --data data --grid metric=f1,recall",
    "finetune plain --data data --tagger crf --smart 1",
    "finetune plain --data data --tagger crf --class-weights balanced",
    "finetune plain --data data --grid reinit-layers=1,9",
    "finetune plain --data data --grid tagger=linear,crf --smart 1",
    "finetune albert --data data --gradient-checkpointing",
    "finetune plain --data pairs --class-weights balanced",
    "finetune plain --data pairs --grid class-weights=none,balanced",
    "finetune plain --data pairs --representation cosine --smart 1",
    "pretrain plain --corpus text.txt --steps 2 --eval-every 1",
    "pretrain albert --corpus text.txt --steps 2 --gradient-checkpointing",
    "pretrain tuned --corpus text.txt --steps 2",
    "pretrain plain --corpus text.txt --steps 2 --max-length 64 --long-length 32",
    "finetune plain --data data --lr 1e-3 --grid lr=1e-3,1e-4",
    "finetune plain --data data --grid train-size=1,9",
    "finetune plain --data folds --task ner --folds --steps 1",
    "finetune plain --data data --task ner --grid lr=1e-3,1e-4 --out begun",
    "distill tuned --teacher tuned --data data --out tuned",
    "distill plain --teacher tuned --data foreign",
    "distill --student tinny --teacher tuned --data data",
    "distill --student distil --teacher plain --data data",
    "distill --student distil --teacher tuned",
    "distill --student distil --teacher tuned --data data --loss kl --layer-map 1:2",
    "distill --student distil --teacher tuned --data data --loss hidden --layer-map 1:20",
    "distill --student distil --teacher tuned --data data --loss mlm",
    "distill --student distil --teacher tuned --data data --tracker wandb",
    "distill --student distil --teacher tuned --data data --loss attention --cache-teacher cache",
    "distill --student distil --teacher tuned --data data --loss hard --cache-teacher cache",
    "distill --student distil --teacher tuned --data data --cache-teacher cache --cache-top 8 --steps 2",
    "distill --student distil --teacher tuned --data data --cache-teacher cache --hours 1",
    "distill --student distil --teacher tuned --data data --steps 2 --hours 1",
    "distill --student distil --teacher tuned --corpus text.txt --patience 2",
    "distill --student distil --teacher tuned --corpus text.txt --schedule plateau",
    "distill --student distil --teacher tuned --corpus missing.txt",
    "distill --student distil --teacher tuned --data data --task relation",
    "distill roberta --teacher plain --corpus text.txt",
    "distill --student distil --teacher albert-tuned --data data --gradient-checkpointing",
    "distill --student distil --teacher tuned --data data --corpus text.txt --loss hard",
    "distill --student distil --teacher tuned --corpus text.txt --loss hard",
    "distill --student distil --teacher tuned --teacher tuned --data data --loss hard",
    "distill --student distil --teacher tuned --data data --augment 1",
    "distill --student distil --teacher tuned --data data --augment 1 --augment-with tuned",
    "distill plain --teacher tuned --data data --loss hidden --patience 2",
    "distill --student tiny --teacher tuned --data data --loss hidden --schedule plateau",
    "distill --student distil --teacher scorer --task similarity --data pairs --augment 1",
    "shrink plain --layers 2 --calibration kept/text.txt --out kept --force",
    "quantize tuned --calibration kept/text.txt --method inc-static --out kept --force",
    "finetune plain --data kept/data --out kept --force",
    "finetune plain --data kept/data --seeds 2 --out kept --force",
    "pretrain plain --corpus kept/text.txt --steps 2 --out kept --force",
    "distill --student distil --teacher tuned --data kept/data --out kept --force",
    "distill --student distil --teacher plain --corpus kept/text.txt --out kept --force",
    "vocab kept/text.txt --size 300 --out kept --force",
    "evaluate plain --data data",
    "evaluate tuned",
    "evaluate tuned --data foreign",
    "evaluate tuned --data data --split dve",
    "evaluate tuned --data data --min f1=80",
    "evaluate tuned --data data --min recal=0.8",
    "evaluate tuned --data data --backend onnxruntime",
    "evaluate tuned --data data --backend onnxruntime:int4",
    "evaluate tuned --data data --task relation",
    "evaluate tuned --data data --task blurb/jnlpba",
    "predict plain text.txt",
    "predict tuned missing.txt",
    "predict tuned text.txt --backend onnxruntime:int8",
    "predict tuned text.txt --out other",
    "predict tuned text.txt --out text.txt",
    "predict tuned text.txt --column text=body",
    "bench tuned --backend onnxruntime",
    "bench missing",
    "bench chooser",
    "bench tuned --length 100000",
    "benchmark plain --data missing",
    "benchmark plain --data data --suite blub",
    "benchmark plain --data data --only hoc",
    "benchmark plain --data data --set lrr=1",
    "report missing",
    "inspect missing",
    "tasks blub",
    "tasks inspect missing",
    "tasks inspect other",
    "tasks inspect data --task token-classification",
]


@pytest.mark.parametrize("command", REFUSED)
def test_dry_run_and_run_refuse_alike(command: str, here: Path, shell: Shell) -> None:
    before = sorted(here.rglob("*"))
    dry, real = shell(command, "--dry-run"), shell(command)
    assert dry.code == real.code in (1, 2), dry.err
    assert dry.err.splitlines()[-1] == real.err.splitlines()[-1]
    assert dry.out == ""
    assert sorted(here.rglob("*")) == before


def test_a_read_only_place_is_refused(here: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    real: Callable[..., bool] = os.access
    monkeypatch.setattr(os, "access", lambda path, mode, **kw: mode & os.W_OK == 0 and real(path, mode, **kw))
    for command in ("shrink plain --layers 2", "finetune plain --data data", "export tuned"):
        dry, run = shell(f"{command} --out new --dry-run"), shell(command, "--out", "new")
        assert dry.code == run.code == 1
        assert dry.err.splitlines()[-1] == run.err.splitlines()[-1]


PLANNED = [
    "distill plain --teacher tuned --data data --steps 1",
    "distill plain --teacher tuned --data data --steps 1 --loss hidden",
    "distill --student bert-tiny --teacher tuned --data data --steps 1",
    "distill bare --teacher plain --corpus text.txt --steps 1 --loss hidden",
    "distill bare --teacher plain --corpus text.txt --steps 1 --loss mlm",
    "distill --student bert-tiny --teacher pairing --corpus text.txt --steps 1",
]


@pytest.mark.parametrize("command", PLANNED)
def test_planned_losses_and_parameters_are_those_of_the_run(command: str, here: Path, shell: Shell) -> None:
    pico.save("bert", here / "bare", head="base")
    config = pico.config_of("bert", len(pico.shared_tokenizer()))
    transformers.BertForPreTraining(config).save_pretrained(here / "pairing")
    pico.shared_tokenizer().save_pretrained(here / "pairing")
    dry, real = shell(command, "--out", "new", "--dry-run"), shell(command, "--out", "new")
    assert dry.code == real.code == 0, dry.err + real.err
    (planned,) = re.findall(r"parameters after +([\d,]+)", dry.err)
    written = json.loads(Path("new/biosqueeze.json").read_text())
    assert planned == f"{written['model']['parameters']['total']:,}"
    assert formula(written["metrics"]["losses"]) in dry.err


@pytest.mark.usefixtures("here")
def test_the_plan_has_epochs_where_no_dev_score_can_end_it(shell: Shell) -> None:
    dry = shell("distill plain --teacher tuned --data data --loss hidden --dry-run")
    assert dry.code == 0, dry.err
    assert "train on data: 3 epochs, lr 0.0005" in dry.err
