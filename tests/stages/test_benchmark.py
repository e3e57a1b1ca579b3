"""A suite in one command: benchmarks that are found are run, missing ones and wrong options are reported."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from biosqueeze.finetuning.runs import FineTuningRun, RunResult
from tests.cli.run import Shell

ROWS = "sepsis\tB-Disease\nsyndrome\tI-Disease\n,\tO\n\nthe\tO\nlupus\tB-Disease\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Write two tiny NER sets of BLURB, and one without a train split."""
    for number, folder in enumerate(("NCBI-disease", "bc5cdr-chem", "bc2gm")):
        place = tmp_path / "benchmarks" / folder
        place.mkdir(parents=True)
        for split in ("train", "dev", "test") if folder != "bc2gm" else ("test",):
            words = [f"{split}{number}\tO\n", ROWS] * 2
            (place / f"{split}.tsv").write_text("\n".join(words))
    return tmp_path / "benchmarks"


@pytest.mark.usefixtures("forked_processes")
def test_found_benchmarks_are_run_and_tabled(pico_bert: Path, root: Path, shell: Shell) -> None:
    command = ("benchmark", pico_bert, "--data", root, "--only", "ncbi-disease", "--only", "ddi", "--seeds", 2)
    command = (*command, "--set", "steps=2", "--set", "precision=fp32", "--out", "out", "--json")
    said = shell(*command)
    assert said.code == 0, said.err
    told = json.loads(said.out)
    (row,) = told["benchmarks"]
    assert told["partial"]
    assert row["name"] == "ncbi-disease"
    assert "entities where the paper counts 5,134" in row["note"]
    assert row["options"] == {
        **{"task": "ner", "lr": 5e-5, "batch_size": 16, "epochs": 60.0, "warmup": 0.1},
        **{"steps": 2, "precision": "fp32"},
    }
    (result,) = row["results"].values()
    assert len(result["runs"]) == 2
    assert told["averages"][pico_bert.name] == pytest.approx(sum(result["runs"]) / 2)
    assert "no ddi" in told["skipped"]["ddi"]
    assert {path.name for path in Path("out").iterdir() if path.is_file()} == {"blurb.json", "blurb.md", "blurb.tex"}
    assert json.loads(Path("out/blurb.json").read_text()) == {
        k: told[k] for k in json.loads(Path("out/blurb.json").read_text())
    }
    assert "| NCBI-disease* |" in Path("out/blurb.md").read_text()
    assert not [path for path in Path("out").rglob("*") if path.suffix == ".safetensors"]
    records = {path: path.stat().st_mtime_ns for path in Path("out").rglob("seed-*.json")}
    assert len(records) == 2
    again = shell(*command)
    assert json.loads(again.out) == told
    assert {path: path.stat().st_mtime_ns for path in records} == records


def test_dry_run_lists_runs_and_missing_benchmarks(pico_bert: Path, root: Path, shell: Shell) -> None:
    said = shell("benchmark", pico_bert, "--data", root, "--set", "bc5-chem.lr=1e-4", "--dry-run", "--json")
    assert said.code == 0, said.err
    steps = json.loads(said.out)["steps"]
    assert steps[0] == "fine-tune and score 10 times"  # five seeds, as in the paper
    assert any(step.startswith("blurb/bc5-chem") and "lr 0.0001" in step for step in steps)
    assert any(step.startswith("blurb/ncbi-disease") and "lr 5e-05" in step for step in steps)
    assert any(step.startswith("bc2gm: left out") and "no train split" in step for step in steps)
    assert not Path("blurb-benchmark").exists()


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        (("--suite", "blub"), "Did you mean 'blurb'?"),
        (("--only", "ncbi"), "blurb has no 'ncbi'"),
        (("--published", "PubmedBERT"), "Did you mean 'PubMedBERT'?"),
        (("--set", "lr"), "not of the form [BENCHMARK.]OPTION=VALUE"),
        (("--set", "ncbi-diseas.lr=1"), "Did you mean 'ncbi-disease'?"),
        (("--set", "rate=1"), "'rate' is no option"),
        (("--set", "out=there"), "'out' is no option"),
        (("--set", "lr=high"), "lr=high is no float"),
        (("--set", "lr=1", "--set", "lr=2"), "--set lr is given twice"),
        (("--set", "lr=-1"), "--set lr=-1: --lr must be at least 0, not -1"),
        (("--set", "ncbi-disease.batch-size=0"), "ncbi-disease: --set batch-size=0: --batch-size must be at least 1"),
        (("--set", "betas=1"), "--betas '1' is not of the form BETA1,BETA2"),
        (("--grid", "lr=1e-4,-1"), "--grid lr=-1: --lr must be at least 0, not -1"),
        (("--set", "steps=2", "--grid", "warmup=2"), "--set steps=2 --grid warmup=2: --warmup must be"),
        (("--set", "train-size=9999"), "--train-size 9999 is more than the"),
        (("--set", "reinit-layers=9"), "--reinit-layers 9 is more than the 4 layers"),
        (("--set", "tagger=crf", "--set", "class-weights=balanced"), "--class-weights needs a loss over single labels"),
        (("--seeds", 0), "--seeds must be at least 1"),
        (("--data", "nowhere"), "there is no directory nowhere"),
    ],
)
def test_wrong_options_are_explained(
    extra: tuple[object, ...], says: str, pico_bert: Path, root: Path, shell: Shell
) -> None:
    for dry_run in ((), ("--dry-run",)):
        said = shell("benchmark", pico_bert, "--data", root, *extra, *dry_run)
        assert said.code in (1, 2)
        assert says in said.err
        assert len([line for line in said.err.splitlines() if line.startswith("error:")]) == 1
        assert "searching on dev" not in said.err
    assert not Path("blurb-benchmark").exists()


def fake_execute(runs: Sequence[FineTuningRun], **_settings: object) -> list[RunResult]:
    """Score a run on dev by its learning rate, and on test by its seed."""

    def score(run: FineTuningRun) -> RunResult:
        rate, seed = run.options["lr"], run.options["seed"]
        test = {"metrics": {"f1": (0.2, 0.3, 0.9)[seed]}} if run.test else None
        return RunResult(run.options, {"metric": "f1", "f1": 1 - abs(rate - 3e-4), "seconds": 1.0}, test)

    for run in runs:
        run.directory.parent.mkdir(parents=True, exist_ok=True)
    return [score(run) for run in runs]


def test_a_grid_is_searched_on_dev(pico_bert: Path, root: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("benchmark", pico_bert, "--data", root, "--only", "ncbi-disease", "--out", "out")
    planned = shell(*words, "--grid", "paper", "--dry-run", "--json")
    *counts, tuning = json.loads(planned.out)["steps"][:3]
    assert counts == ["search a grid on dev: 6 runs", "fine-tune and score 5 times"]
    assert "lr 1e-05 or 3e-05 or 5e-05, batch-size 16 or 32" in tuning.replace(" tokens", "")
    refused = shell(*words, "--grid", "paper", "--grid", "lr=1e-5")
    assert (refused.code, "--grid paper is the grid of the paper" in refused.err) == (2, True)
    done: list[FineTuningRun] = []
    monkeypatch.setattr(
        "biosqueeze.finetuning.runs.execute", lambda runs, **rest: (done.extend(runs), fake_execute(runs, **rest))[1]
    )
    said = shell(*words, "--grid", "lr=1e-4,3e-4,9e-4", "--seeds", 2, "--json")
    assert said.code == 0, said.err
    assert "lr 0.0003 (best on dev" in said.err
    assert [(run.options["lr"], run.options["seed"], run.test) for run in done] == [
        *[(1e-4, 0, False), (3e-4, 0, False), (9e-4, 0, False)],
        *[(3e-4, 0, True), (3e-4, 1, True)],
    ]
    assert len({run.directory for run in done}) == len(done)
    (row,) = json.loads(said.out)["benchmarks"]
    (result,) = row["results"].values()
    assert result["chosen"] == {"lr": 3e-4}
    assert "lr" not in row["options"] and "batch_size" in row["options"]


def test_medians_are_shown_where_the_paper_has_them(
    pico_bert: Path, root: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("biosqueeze.finetuning.runs.execute", fake_execute)
    words = ("benchmark", pico_bert, "--data", root, "--suite", "biolm", "--only", "ncbi-disease", "--seeds", 3)
    said = shell(*words, "--out", "out", "--json")
    assert said.code == 0, said.err
    (row,) = json.loads(said.out)["benchmarks"]
    (result,) = row["results"].values()
    assert (result["statistic"], result["score"]) == ("median", pytest.approx(30))
    assert (row["options"]["epochs"], row["options"]["eval_every"]) == (20, 500)
    assert "Medians, as in the paper: NCBI-Disease." in Path("out/biolm.md").read_text()


def test_a_root_without_benchmarks_is_refused(pico_bert: Path, tmp_path: Path, shell: Shell) -> None:
    said = shell("benchmark", pico_bert, "--data", tmp_path)
    assert said.code == 1
    assert "biosqueeze tasks blurb" in said.err


def test_one_checkpoint_twice_is_refused(pico_bert: Path, root: Path, shell: Shell) -> None:
    said = shell("benchmark", pico_bert, pico_bert, "--data", root)
    assert said.code == 2
    assert "named twice" in said.err


def test_two_spellings_of_one_checkpoint_are_refused(pico_bert: Path, root: Path, shell: Shell) -> None:
    Path("link").symlink_to(pico_bert)
    Path("base").symlink_to(pico_bert)
    for names in (("base", "./base"), ("base", "link"), (pico_bert, "base")):
        said = shell("benchmark", *names, "--data", root, "--dry-run")
        assert said.code == 2, names
        assert f"one checkpoint is named twice: {names[0]} and {names[1]}; name each once" in said.err


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--set", "lr=1e-4", "--grid", "lr=1e-5,3e-5"), "lr=0.0001"),
        (("--set", "ncbi-disease.lr=1e-4", "--grid", "lr=1e-5,3e-5"), "ncbi-disease.lr=0.0001"),
        (("--set", "batch-size=8", "--grid", "paper"), "batch-size=8"),
        (("--set", "bc2gm.lr=1e-4", "--set", "steps=2", "--grid", "lr=1e-5"), ""),
    ],
)
def test_an_option_is_set_or_searched(
    words: tuple[str, ...], named: str, pico_bert: Path, root: Path, shell: Shell
) -> None:
    said = shell("benchmark", pico_bert, "--data", root, "--only", "ncbi-disease", *words, "--dry-run")
    assert said.code == (2 if named else 0), said.err
    assert not named or f"--set {named} has no effect, because --grid sets" in said.err


def test_a_benchmark_without_dev_holds_out_a_share(pico_bert: Path, root: Path, shell: Shell) -> None:
    (root / "NCBI-disease" / "dev.tsv").unlink()
    said = shell("benchmark", pico_bert, "--data", root, "--only", "ncbi-disease", "--dry-run", "--json")
    assert said.code == 0, said.err
    assert any("dev-share 0.1" in step for step in json.loads(said.out)["steps"])
    assert "10% of train is held out as dev" in said.err


def test_records_of_other_options_are_refused_by_the_plan(pico_bert: Path, root: Path, shell: Shell) -> None:
    words = (
        "benchmark",
        pico_bert,
        "--data",
        root,
        "--only",
        "ncbi-disease",
        "--seeds",
        1,
        "--out",
        "out",
        "--dry-run",
    )
    column = f"{Path(pico_bert).name}-{hashlib.sha256(str(Path(pico_bert).resolve()).encode()).hexdigest()[:6]}"
    record = Path("out", column, "ncbi-disease", "seed-0.json")
    record.parent.mkdir(parents=True)
    assert "(exists)" in shell(*words).err
    record.write_text(json.dumps({"options": {"steps": 7}, "dev": {}, "test": None}))
    said = shell(*words)
    assert (said.code, f"{record} was made with other values of" in said.err) == (1, True), said.err


def test_every_fold_is_a_run(pico_bert: Path, tmp_path: Path, shell: Shell) -> None:
    for fold in ("1", "2", "10"):
        place = tmp_path / "GAD" / fold
        place.mkdir(parents=True)
        (place / "train.tsv").write_text(
            "".join(f"@GENE$ {i} {fold} @DISEASE$ in train .\t{i % 2}\n" for i in range(20))
        )
        rows = "".join(f"{i}\t@GENE$ {i} {fold} @DISEASE$ in test .\t{i % 2}\n" for i in range(4))
        (place / "test.tsv").write_text("index\tsentence\tlabel\n" + rows)
    said = shell("benchmark", pico_bert, "--suite", "biolm", "--data", tmp_path, "--seeds", 2, "--dry-run", "--json")
    assert said.code == 0, said.err
    assert json.loads(said.out)["steps"][0] == "fine-tune and score 4 times"  # the first fold is for choosing
    assert "folds missing: 3, 4, 5, 6, 7, 8, 9; used: 1, 2, 10" in " ".join(said.err.split())
    said = shell("benchmark", pico_bert, "--suite", "compact", "--data", tmp_path, "--dry-run", "--json")
    assert json.loads(said.out)["steps"][0] == "fine-tune and score 1 times"  # one held-out tenth, one seed


def test_columns_can_be_named(pico_bert: Path, tmp_path: Path, shell: Shell) -> None:
    place = tmp_path / "benchmarks" / "HoC"
    place.mkdir(parents=True)
    for split in ("train", "dev", "test"):
        rows = [{"befund": f"{split} {label}", "mal": label} for label in ("A", "B")]
        (place / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("benchmark", pico_bert, "--data", tmp_path / "benchmarks", "--only", "hoc", "--dry-run")
    assert shell(*words).code == 1
    said = shell(*words, "--set", "hoc.column=text=befund", "--set", "hoc.column=label=mal")
    assert said.code == 0, said.err
    assert "column text=befund+label=mal" in " ".join(said.err.split())
