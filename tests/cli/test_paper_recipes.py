"""The recipes of the papers' models: their options fit together at both scales, and they run."""

import json
from pathlib import Path

import pytest

from biosqueeze.cli.recipe import check_steps
from biosqueeze.cli.recipe_file import read_recipe
from biosqueeze.cli.recipe_tables import read_tables
from biosqueeze.cli.shipped_recipes import shipped_recipes
from tests import pico
from tests.cli.run import Shell

OWN = ("quickstart", "relation_encodings", "tagging_schemes")  # no paper's model
PAPERS = {name: path for name, path in shipped_recipes().items() if name not in OWN}


@pytest.mark.parametrize("scale", [None, "laptop"])
@pytest.mark.parametrize("name", PAPERS)
def test_options_of_all_steps_fit_together(name: str, scale: str | None, tmp_path: Path) -> None:
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


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """Documents of three sentences."""
    lines = list(pico.sentences(180))
    documents = ["\n".join(lines[start : start + 3]) for start in range(0, len(lines), 3)]
    path = tmp_path / "articles.txt"
    path.write_text("\n\n".join(documents))
    return path


@pytest.mark.parametrize(
    ("name", "trained", "tables"),
    [
        ("tinybiobert", "distil", "[scale.laptop.distil]\nfit_head = 2\nsteps = 2\nbatch_size = 2\nmax_length = 32"),
        ("biom_electra_base", "pretrain", "[scale.laptop.pretrain]\nsteps = 2\nbatch_size = 2\nhidden = 64\nheads = 1"),
        (
            "bioformer_16l",
            "pretrain",
            "[scale.laptop.vocab]\nsize = 200\n[scale.laptop.pretrain]\nsteps = 2\nbatch_size = 2\nlayers = 2\n"
            "max_length = 32",
        ),
    ],
)
def test_paper_recipes_run(
    name: str,
    trained: str,
    tables: str,
    text: Path,
    tmp_path: Path,
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small = pico.save("bert", tmp_path / "minilm", head="base")  # as demo:minilm, it has no head
    monkeypatch.setattr("biosqueeze.checkpoint._locate_demo", lambda _name: small)
    start = f'extends = "{name}"\nleave_out = ["benchmark", "bench"]\n'
    corpus = f'[scale.laptop.corpus]\ninputs = ["{text}"]\nsample = ["text=50"]\nkeep = "title,abstract,body"\n'
    path = tmp_path / "pico.toml"
    path.write_text(start + corpus + tables)
    said = shell("run", path, "--scale", "laptop", "--json")
    assert said.code == 0, said.err
    steps = json.loads(said.out)["steps"]
    assert steps["corpus"]["train"]["documents"] == 50
    assert Path("pico-laptop-run", trained, "model.safetensors").is_file()
