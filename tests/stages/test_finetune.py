"""Fine-tuning: it learns, keeps the best checkpoint on dev, and explains errors in the data."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from transformers import AutoModelForTokenClassification

from biosqueeze.finetuning import fine_tune, search
from tests import pico
from tests.cli.run import Shell, start

GOOD = "sepsis\tB-Disease\nsyndrome\tI-Disease\n,\tO\n\nthe\tO\nlupus\tB-Disease\n"
QUICK = ("--precision", "fp32", "--steps", "2", "--out", "out")


def folder(root: Path, **splits: str | bytes) -> Path:
    path = root / "data"
    path.mkdir()
    for name in ("train", "dev", "test"):
        content = splits.get(name, GOOD)
        (path / f"{name}.tsv").write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.fixture
def learnable(tmp_path: Path) -> Path:
    rows = {}
    for seed, split in enumerate(("train", "dev", "test")):
        words = [w for s in pico.sentences(80, seed=seed) for w in [*s.rstrip(".").split(), ""]]
        tagged = [f"{w}\t{'B-Disease' if w.lower().endswith('tis') else 'O'}" if w else "" for w in words]
        rows[split] = "\n".join(tagged) + "\n\nfibrosis\tB-Disease\nsyndrome\tI-Disease\n"
    return folder(tmp_path, **rows)


def test_it_learns_and_keeps_the_best_on_dev(pico_bert: Path, learnable: Path, shell: Shell) -> None:
    said = shell(
        "finetune", pico_bert, "--data", learnable, "--epochs", 8, "--lr", "5e-3", "--precision", "fp32", "--out", "out"
    )
    assert said.code == 0, said.err
    lines = [json.loads(line) for line in Path("out/metrics.jsonl").read_text().splitlines()]
    dev = {line["step"]: line["dev"]["f1"] for line in lines if "dev" in line}
    assert len(dev) == 8
    manifest = json.loads(Path("out/biosqueeze.json").read_text())
    assert manifest["metrics"]["best_step"] == max(dev, key=dev.get)
    assert manifest["metrics"]["f1"] == max(dev.values()) > 0.7
    told = {"name": "ner", "data": str(learnable), "labels": list(pico.LABELS), "scheme": "BIO"}
    assert manifest["task"] == {**told, "formulation": {"scheme": "BIO"}, "metric": "f1", "max_length": pico.POSITIONS}
    scored = shell("evaluate out --split dev --json")
    assert json.loads(scored.out)["metrics"]["f1"] == pytest.approx(max(dev.values()))
    model, info = AutoModelForTokenClassification.from_pretrained("out", output_loading_info=True)
    assert not info["missing_keys"]
    assert model.config.id2label == dict(enumerate(pico.LABELS))


def test_adversarial_noise_does_not_hide_a_nan(pico_bert: Path, learnable: Path, shell: Shell) -> None:
    words = ("--smart", 1, "--lr", "1e30", "--warmup", 0, "--steps", 20, "--precision", "fp32", "--out", "out")
    said = shell("finetune", pico_bert, "--data", learnable, *words)
    assert said.code == 1
    assert "NaN or infinite at step" in said.err and "--lr" in said.err


@pytest.mark.parametrize("extra", [(), ("--dry-run",)])
def test_layers_with_shared_weights_are_counted_once(
    extra: tuple[str, ...], learnable: Path, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the data are encoded."""
    monkeypatch.setattr(fine_tune, "load_tokenizer", lambda _: pytest.fail("the data would be encoded"))
    albert = pico.save("albert", tmp_path / "albert")
    said = shell("finetune", albert, "--data", learnable, "--reinit-layers", 2, *QUICK, *extra)
    assert said.code == 2
    assert "--reinit-layers 2 is more than the 1 layers with weights of their own of this model" in said.err


def test_a_drawn_train_split_is_described(pico_bert: Path, tmp_path: Path, shell: Shell) -> None:
    for split in ("train", "dev"):
        rows = (f"{split} patient with disease {n}\t{'yes' if n % 4 == 0 else 'no'}\n" for n in range(40))
        (tmp_path / f"{split}.tsv").write_text("sentence\tlabel\n" + "".join(rows))
    options = ("--task", "classification", "--train-size", "8", "--seed", "3", *QUICK, "--dry-run")
    said = shell("finetune", pico_bert, "--data", tmp_path, *options)
    assert said.code == 0, said.err
    assert "trained on 8 of 40 training examples (no 6, yes 2), drawn with seed 3" in said.err


@pytest.mark.parametrize(
    ("options", "scored"), [((), True), (("--reinit-layers", 1), False), (("--dev-share", 0.2), False)]
)
def test_the_start_is_scored_where_it_can_be_compared(
    options: tuple[object, ...], scored: bool, pico_ner: Path, learnable: Path, shell: Shell
) -> None:
    """Not where layers of it are new, or where it may have been trained on what is held out."""
    said = shell("finetune", pico_ner, "--data", learnable, *QUICK, *options)
    assert said.code == 0, said.err
    assert ("before training: dev f1" in said.err) == scored
    assert ("start_score" in json.loads(Path("out/biosqueeze.json").read_text())["metrics"]) == scored


@pytest.mark.usefixtures("forked_processes")
def test_a_search_names_runs_that_changed_nothing(pico_bert: Path, learnable: Path, shell: Shell) -> None:
    words = ("--data", learnable, "--precision", "fp32", "--seed", 0)
    tuned = shell("finetune", pico_bert, *words, "--epochs", 8, "--lr", "5e-3", "--out", "tuned")
    assert tuned.code == 0, tuned.err
    said = shell("finetune tuned", *words, "--steps", 2, "--warmup", 0, "--grid", "lr=0,0.5", "--out", "out")
    assert said.code == 0, said.err
    assert "1 of 2 runs have the score of the checkpoint as it was" in said.err
    assert "high on dev: lr=0.5, seed=0. Lower" in said.err


@pytest.mark.parametrize("extra", [(), ("--dry-run",)])
@pytest.mark.parametrize(
    ("grid", "says"),
    [
        ("lr=1e-4,-1", "--grid lr=-1: --lr must be at least 0, not -1"),
        ("stride=64", "--grid stride=64: --stride is not used by the task ner"),
        ("rate=1", "--grid: 'rate' is no option"),
    ],
)
def test_every_point_is_checked_before_the_first_run(
    grid: str, says: str, extra: tuple[str, ...], pico_bert: Path, learnable: Path, shell: Shell
) -> None:
    said = shell("finetune", pico_bert, "--data", learnable, "--task", "ner", "--grid", grid, *QUICK, *extra)
    assert said.code == 2
    assert says in said.err
    assert not [*Path().glob("out*")]


@pytest.mark.parametrize(
    ("grid", "code", "says"),
    [
        ("representation=cls,entity-starts", 2, "reads the marker before each entity"),
        ("entities=dummy,markers", 1, "needs the entities' own names"),
    ],
)
def test_the_data_are_read_as_at_every_point(
    grid: str, code: int, says: str, pico_bert: Path, tmp_path: Path, shell: Shell
) -> None:
    for split in ("train", "dev"):
        rows = [f"@DRUG$ blocks {split} @GENE$ {number} .\t{number % 2}" for number in range(8)]
        (tmp_path / f"{split}.tsv").write_text("\n".join(["text\tlabel", *rows]))
    words = ("--data", tmp_path, "--task", "relation", "--grid", grid, "--dry-run")
    said = shell("finetune", pico_bert, *words)
    assert said.code == code
    assert f"--grid {grid.replace('=cls,', '=').replace('=dummy,', '=')}: " in said.err
    assert says in said.err


def test_a_dev_split_that_selects_nothing_is_said(pico_bert: Path, tmp_path: Path, shell: Shell) -> None:
    said = shell("finetune", pico_bert, "--data", folder(tmp_path, dev="the\tO\nheart\tO\n"), *QUICK)
    assert said.code == 0, said.err
    assert "dev has the same label everywhere, so its scores cannot tell which weights are better" in said.err


def test_with_dev_holds_out_a_share_of_both(pico_bert: Path, learnable: Path, shell: Shell) -> None:
    refused = shell("finetune", pico_bert, "--data", learnable, "--with-dev", *QUICK)
    assert (refused.code, "--dev-share" in refused.err) == (2, True)
    assert not Path("out").exists()
    said = shell("finetune", pico_bert, "--data", learnable, "--with-dev", "--dev-share", "0.25", *QUICK, "--dry-run")
    counts = {split: (learnable / f"{split}.tsv").read_text().strip().count("\n\n") + 1 for split in ("train", "dev")}
    held = round(0.25 * sum(counts.values()))
    assert f"{sum(counts.values()) - held} in train, {held} in dev" in said.out + said.err


def test_a_missed_gate_exits_with_4(
    pico_ner: Path, copy_of: Callable[[Path], Path], tmp_path: Path, shell: Shell
) -> None:
    said = shell("evaluate", copy_of(pico_ner), "--data", folder(tmp_path), "--min", "f1=1")
    assert said.code == 4
    assert said.out == ""
    assert "f1" in said.err


@pytest.mark.parametrize(
    ("splits", "says"),
    [
        ({"train": "sepsis\tB-Disease\nsyndrome\n"}, "train.tsv:2"),
        ({"dev": "the\tO\nsyndrome\tI-Disease\nlupus\tB-Disease\n"}, "dev.tsv:2"),
        ({"dev": "aspirin\tB-Drug\n"}, "B-Drug"),
        ({"test": "aspirin\tB-Drug\n"}, "B-Drug"),
        ({"test": "the\tO\nsyndrome\tI-Disease\n"}, "test.tsv:2"),
        ({"train": ""}, "empty"),
        ({"train": "caf\u00e9\tO\nx\tB-Disease\n".encode("latin-1")}, "UTF-8"),
    ],
)
def test_bad_data_is_explained(
    splits: dict[str, str | bytes], says: str, pico_bert: Path, tmp_path: Path, shell: Shell
) -> None:
    said = shell("finetune", pico_bert, "--data", folder(tmp_path, **splits), *QUICK)
    assert said.code == 1, said.err
    assert says in said.err
    assert len(said.err.strip().splitlines()) == 1, said.err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["data"]


def test_windows_line_ends_are_fine(pico_bert: Path, tmp_path: Path, shell: Shell) -> None:
    said = shell("finetune", pico_bert, "--data", folder(tmp_path, train=GOOD.replace("\n", "\r\n")), *QUICK)
    assert said.code == 0, said.err


def test_an_existing_output_is_refused_before_any_work(pico_bert: Path, tmp_path: Path, shell: Shell) -> None:
    data = folder(tmp_path)
    assert shell("finetune", pico_bert, "--data", data, *QUICK).code == 0
    again = shell("finetune", pico_bert, "--data", data, *QUICK)
    assert again.code == 1
    assert "--force" in again.err
    assert len(again.err.splitlines()) == 1
    assert shell("finetune", pico_bert, "--data", data, "--force", *QUICK).code == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 150 KiB; only root may mount one."""
    path = tmp_path / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=150k", "tmpfs", str(path)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a tmpfs is not allowed here")
    yield path
    subprocess.run(["umount", str(path)], check=True)


@pytest.mark.parametrize("save_every", [1, 500])
def test_a_full_disk_is_explained(
    save_every: int, pico_bert: Path, tmp_path: Path, small_disk: Path, shell: Shell
) -> None:
    said = shell(
        "finetune", pico_bert, "--data", folder(tmp_path), "--steps", 3, "--save-every", save_every, "--out",
        small_disk / "out", "--precision", "fp32",
    )  # fmt: skip
    assert said.code == 1, said.err
    assert "full" in said.err.splitlines()[-1]
    assert list(small_disk.iterdir()) == []


def test_the_dry_run_counts_without_training(pico_bert: Path, tmp_path: Path, shell: Shell) -> None:
    said = shell("finetune", pico_bert, "--data", folder(tmp_path), "--dry-run", "--json")
    plan = json.loads(said.out)
    assert plan["parameters_before"] > 0
    assert plan["parameters_after"] > 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["data"]


def test_a_killed_and_resumed_run_keeps_the_best(pico_bert: Path, learnable: Path, shell: Shell) -> None:
    common = ("finetune", pico_bert, "--data", learnable, "--epochs", 4, "--lr", "5e-3", "--precision", "fp32")
    common += ("--save-every", 3)
    whole = shell(*common, "--out", "whole")
    assert whole.code == 0, whole.err
    running = start(*common, "--out", "killed", log=Path("log"))
    running.wait_for(lambda: list(Path().glob("killed.partial/state-0000000[6-9]")))
    running.end(signal.SIGKILL)
    refused = shell(*common, "--label-all-pieces", "--out", "killed", "--resume")
    assert (refused.code, "label_all_pieces; repeat the command as it was" in refused.err) == (1, True), refused.err
    resumed = shell(*common, "--out", "killed", "--resume")
    assert resumed.code == 0, resumed.err
    assert "going on from step" in resumed.err
    lines = [Path(name, "metrics.jsonl").read_text().splitlines() for name in ("whole", "killed")]
    entries = [[json.loads(line) for line in part] for part in lines]
    for entry in entries[0] + entries[1]:
        entry.pop("seconds", None)
    assert entries[0] == entries[1]
    assert Path("whole/model.safetensors").read_bytes() == Path("killed/model.safetensors").read_bytes()


def test_a_search_is_planned_run_by_run(pico_bert: Path, learnable: Path, shell: Shell) -> None:
    search = ("--grid", "lr=1e-4,5e-4", "--seeds", 2)
    said = shell("finetune", pico_bert, "--data", learnable, *search, "--dry-run", "--json")
    assert said.code == 0, said.err
    steps = json.loads(said.out)["steps"]
    assert steps[0].endswith("4 times")
    assert steps[1:] == [f"lr={lr}, seed={seed}" for lr in (0.0001, 0.0005) for seed in (0, 1)]
    assert shell("finetune", pico_bert, "--data", learnable, "--grid", "rate=1", "--dry-run").code == 2
    assert shell("finetune", pico_bert, "--data", learnable, "--folds", "--dry-run").code == 1
    last = ("--seeds", 2, "--seed", 2**31 - 1)
    said = shell("finetune", pico_bert, "--data", learnable, *last, "--dry-run")
    assert (said.code, "most 2,147,483,647, not 2,147,483,648" in said.err) == (2, True)


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        (("--train-size", 3), "data/2: --train-size 3 is more than the 2 training examples"),
        (("--grid", "train-size=1,3"), "data/2: --grid train-size=3: --train-size 3 is more than the 2"),
        (("--metric", "f1-Gene"), "data/2: --metric: there is no score 'f1-Gene'"),
    ],
)
def test_every_fold_is_checked_before_the_first_run(
    extra: tuple[object, ...], says: str, pico_bert: Path, tmp_path: Path, shell: Shell
) -> None:
    for number, text in enumerate((f"{GOOD}\np53\tB-Gene\n", GOOD), 1):
        for split in ("train", "dev", "test"):
            (tmp_path / "data" / str(number)).mkdir(parents=True, exist_ok=True)
            (tmp_path / "data" / str(number) / f"{split}.tsv").write_text(f"{split}\tO\n{text}")
    said = shell("finetune", pico_bert, "--data", "data", "--task", "ner", "--folds", *extra, "--dry-run")
    assert (said.code, says in said.err) == (2, True), said.err


def test_a_fold_without_train_is_named(pico_bert: Path, tmp_path: Path, shell: Shell) -> None:
    for place in (tmp_path / "cv" / name for name in "123"):
        place.mkdir(parents=True)
        for split in ("train", "dev", "test"):
            (place / f"{split}.tsv").write_text(f"{split}\tO\n{GOOD}")
    words = ("--data", "cv", "--task", "ner", "--folds", "--dry-run")
    assert "cv: 3 folds" in shell("finetune", pico_bert, *words).err
    (tmp_path / "cv/2/train.tsv").rename(tmp_path / "cv/2/tarin.tsv")
    said = shell("finetune", pico_bert, *words)
    assert (said.code, "cv/2 is no fold as 1 is: it has dev.tsv, tarin.tsv, test.tsv" in said.err) == (1, True)


def test_finished_runs_of_a_search_are_kept(
    pico_bert: Path, learnable: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --force too, which replaces an earlier output; another search starts again."""

    def interrupted(plan: search.SearchPlan, jobs: int | None) -> search.SearchResult:
        (plan.directory / "done").touch()
        raise KeyboardInterrupt("repeat the command to go on")

    monkeypatch.setattr(search, "search", interrupted)
    words = ("finetune", pico_bert, "--data", learnable, "--seeds", 2, "--out", "x", "--force")
    assert shell(*words).code == 130
    kept: list[bool] = []

    def looking(plan: search.SearchPlan, jobs: int | None) -> search.SearchResult:
        kept.append((plan.directory / "done").exists())
        raise KeyboardInterrupt

    monkeypatch.setattr(search, "search", looking)
    assert shell(*words).code == 130
    assert shell(*words, "--lr", "1e-3").code == 130
    assert kept == [True, False]


def test_the_task_is_guessed_from_the_data(pico_bert: Path, tmp_path: Path, shell: Shell) -> None:
    text = "text\tlabel\n" + "".join(
        f"A study of {label} number {{}}{n}\t{label}\n" for n in "ab" for label in ("mice", "men")
    )
    for split in ("train", "dev"):
        (tmp_path / f"{split}.tsv").write_text(text.replace("{}", split))
    said = shell("finetune", pico_bert, "--data", tmp_path, "--out", "out", *QUICK)
    assert said.code == 0
    assert "task classification, because train.tsv holds texts with labels; --task names another" in said.err
    manifest = json.loads((tmp_path / "out" / "biosqueeze.json").read_text())
    assert manifest["task"]["name"] == manifest["history"][-1]["options"]["task"] == "classification"


def test_an_uncertain_task_is_named_and_not_taken(pico_bert: Path, tmp_path: Path, shell: Shell) -> None:
    rows = [{"sentence1": "A study.", "sentence2": "Another.", "label": n} for n in (0, 1)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = shell("finetune", pico_bert, "--data", tmp_path)
    assert said.code == 2
    assert "fits several tasks" in said.err
    assert "give --task nli, which is the likeliest, or --task similarity" in said.err


def test_a_tagger_that_learned_nothing_is_named(pico_bert: Path, tmp_path: Path, shell: Shell) -> None:
    data = folder(tmp_path, train="the\tO\n\n" * 40 + "sepsis\tB-Disease\n", dev="the\tB-Disease\n", test="of\tO\n")
    options = "--precision fp32 --steps 20 --eval-every 20 --lr 1e-2 --out out"
    said = shell("finetune", pico_bert, "--data", data, *options.split())
    assert said.code == 0
    assert "the model predicts no entity at all on dev" in said.err


def test_a_former_head_leaves_no_problem_type(classifier: str, tags: Path, shell: Shell) -> None:
    assert shell("relabel", classifier, "--multi-label", "--out", "several").code == 0
    quick = ("--steps", 1, "--precision", "fp32", "--max-length", 24)
    said = shell("finetune several --data", tags, *quick, "--out", "out")
    assert said.code == 0, said.err
    assert "problem_type" not in json.loads(Path("out/config.json").read_text())
