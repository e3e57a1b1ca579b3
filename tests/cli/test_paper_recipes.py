"""The recipes of the papers' models: their options fit together at both scales, and they run."""

import json
from pathlib import Path
from typing import Any

import pytest

from biosqueeze.cli.recipe import check_steps
from biosqueeze.cli.recipe_file import read_recipe
from biosqueeze.cli.recipe_tables import read_tables
from biosqueeze.cli.shipped_recipes import shipped_recipes
from tests import pico
from tests.cli.run import Shell
from tests.tasks.sources import squad

OWN = ("quickstart", "gradual", "relation_encodings", "tagging_schemes")  # no paper's model
PAPERS = {name: path for name, path in shipped_recipes().items() if name not in OWN}


@pytest.mark.parametrize("scale", [None, "laptop"])
@pytest.mark.parametrize("name", PAPERS)
def test_options_of_all_steps_fit_together(
    name: str, scale: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in (
        "baseline",
        "oa_comm",
        "mimic",
        "benchmarks/squad2",
        "benchmarks/bioasq-7b",
    ):  # as recipes/README says
        Path(folder).mkdir(parents=True)
    steps = read_recipe(PAPERS[name], (), scale)
    check_steps(steps, tmp_path)
    *_, evaluation, last = [step.stage for step in steps]
    assert evaluation in ("benchmark", "evaluate")
    assert last == "bench"


@pytest.mark.parametrize("name", PAPERS)
def test_a_laptop_trains_at_most_100_steps(name: str) -> None:
    tables = read_tables(PAPERS[name]).at("laptop", PAPERS[name])
    trainings = [table for step, table in tables.items() if table.get("stage", step) in ("pretrain", "distill")]
    assert all(table["steps"] <= 100 and table["batch_size"] <= 16 for table in trainings)
    assert trainings or name in ("bioformer_study", "squad_to_bioasq")


def questions(number: int) -> str:
    paragraphs = [json.loads(squad(10 * number + each))["data"][0] for each in range(4)]
    return json.dumps({"version": "1.1", "data": paragraphs})


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write text, questions, tagged sentences and the demo's model where recipes at laptop scale expect them."""
    lines = list(pico.sentences(180))
    documents = ["\n".join(lines[start : start + 3]) for start in range(0, len(lines), 3)]
    (tmp_path / "articles.txt").write_text("\n\n".join(documents))
    for folder, ending, write in (
        *((f"benchmarks/{name}", "json", questions) for name in ("squad2", "bioasq-7b")),
        ("benchmarks/ncbi-disease", "tsv", lambda number: f"the\tO\nlupus{number}\tB-Disease\n\n" * 4),
    ):
        (tmp_path / folder).mkdir(parents=True)
        for number, split in enumerate(("train", "dev", "test")):
            (tmp_path / folder / f"{split}.{ending}").write_text(write(number))
    small = pico.save("bert", tmp_path / "minilm", head="base")  # as demo:minilm, it has no head
    monkeypatch.setattr("biosqueeze.checkpoint._locate_demo", lambda _name: small)
    return tmp_path


LEFT_OUT = ("benchmark", "bench", "evaluate")  # of models that learnt nothing; they are tested as stages
# Values that make each step quick, of the options that a recipe sets.
PICO: dict[str, dict[str, Any]] = {
    "corpus": {"sample": "text=50", "min_words": 1},
    "vocab": {"size": 300},
    "pretrain": {"steps": 2, "batch_size": 2, "max_length": 32, "long_length": 48, "layers": 2},
    "distill": {"steps": 2, "batch_size": 2, "max_length": 32, "fit_head": 2},
    "finetune": {"steps": 2, "max_length": 32},
}


@pytest.mark.usefixtures("forked_processes")
@pytest.mark.parametrize("name", [name for name in PAPERS if name != "bioformer_study"])
def test_paper_recipes_run(name: str, data: Path, shell: Shell) -> None:
    tables = read_tables(PAPERS[name]).at("laptop", PAPERS[name])
    stages = {step: str(table.get("stage", step)) for step, table in tables.items()}
    left_out = [step for step, stage in stages.items() if stage in LEFT_OUT]
    path = data / "pico.toml"
    path.write_text(f'extends = "{name}"\nleave_out = {json.dumps(left_out)}\n')
    kept = [step for step in tables if step not in left_out]
    values = [f"corpus.inputs={data / 'articles.txt'}"] if "corpus" in kept else []
    for step in kept:
        own = {key: value for key, value in PICO[stages[step]].items() if key in tables[step]}
        values += [f"{step}.{key}={value}" for key, value in own.items()]
    said = shell("run", path, "--scale", "laptop", "--json", *(word for value in values for word in ("--set", value)))
    assert said.code == 0, said.err
    steps = json.loads(said.out)["steps"]
    assert list(steps) == kept
    assert steps.get("corpus", {"train": {"documents": 50}})["train"]["documents"] == 50
    for step in kept:
        trained = Path("pico-laptop-run", step, "model.safetensors")
        assert trained.is_file() == (stages[step] not in ("corpus", "vocab"))


@pytest.mark.usefixtures("forked_processes")
def test_the_study_of_shapes_runs(data: Path, shell: Shell) -> None:
    names = ("bert_uncased_L-8_H-128_A-2", "bert_uncased_L-2_H-256_A-4")
    for seed, name in enumerate(names):
        pico.save("bert", data / "google" / name, seed=seed)
    (data / "pico.toml").write_text('extends = "bioformer_study"\nleave_out = ["bench"]\n')
    sets = ("--set", "benchmark.grid=lr=1e-4", "--set", "benchmark.set=steps=2", "--set", "benchmark.set=max_length=32")
    said = shell("run", data / "pico.toml", "--scale", "laptop", "--json", *sets)
    assert said.code == 0, said.err
    (row,) = json.loads(said.out)["steps"]["benchmark"]["benchmarks"]
    assert (row["name"], list(row["results"])) == ("ncbi-disease", list(names))
