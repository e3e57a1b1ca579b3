"""Recipes that were killed: they go on where they were, and take over what they had written."""

import json
import signal
from pathlib import Path

import pytest

from biosqueeze.cli.recipe import RecipeRun
from biosqueeze.files import content_hash
from tests import pico
from tests.cli.recipe_files import write
from tests.cli.run import Shell, start
from tests.kills import Touches, killed, removes, renames_to


@pytest.fixture
def own_output(pico_bert: Path, tmp_path: Path) -> Path:
    """A recipe of a training and a shrinking, each with an output outside of the run's directory."""
    Path(tmp_path, "text").write_text("\n".join(pico.sentences(60)))
    return write(
        tmp_path / "own.toml",
        f'[distill]\nteacher = "{pico_bert}"\nstudent = "distil"\ncorpus = ["text"]\nsteps = 5\nsave_every = 2\n'
        'precision = "fp32"\nout = "trained"\n\n[shrink]\nlayers = "1"\nout = "small"\n',
    )


def test_the_state_survives_a_kill_between_steps(tmp_path: Path) -> None:
    run = RecipeRun(tmp_path / "out", {})
    run.record("a", key="k", path="p", content="c", facts={})
    assert json.loads((tmp_path / "out" / "recipe-state.json").read_text())["a"]["key"] == "k"


def test_a_killed_recipe_goes_on_where_it_was(pico_bert: Path, tmp_path: Path, shell: Shell) -> None:
    text = tmp_path / "corpus.txt"
    text.write_text("\n".join(pico.sentences(100)))
    path = write(
        tmp_path / "r.toml",
        f'[shrink]\ncheckpoint = "{pico_bert}"\nlayers = "2"\n\n'
        f'[distill]\nteacher = "{pico_bert}"\ncorpus = ["{text}"]\nsteps = 60\nsave_every = 5\nprecision = "fp32"\n',
    )
    running = start("run", path, log=tmp_path / "log")
    running.wait_for(lambda: list(tmp_path.glob("r-run/distill.partial/state-*")))
    running.end(signal.SIGKILL)
    said = shell("run", path)
    assert said.code == 0, said.err
    assert "shrink: unchanged, skipped" in said.err
    assert "going on from step" in said.err
    steps = [json.loads(line)["step"] for line in Path(said.path, "metrics.jsonl").read_text().splitlines()]
    assert steps == list(range(1, 61))


@pytest.mark.parametrize("when", [renames_to("trained"), removes("trained/state-*/progress.json")], ids=["in", "after"])
def test_a_killed_step_is_taken_over(when: Touches, own_output: Path, shell: Shell) -> None:
    killed("run", own_output, at=when, log=Path("log"))
    said = shell("run", own_output)
    assert said.code == 0, said.err
    assert "by an earlier run" in said.err or "finished already" in said.err
    assert not list(Path("trained").glob("state-*"))
    assert shell("run", own_output).err.count("unchanged, skipped") == 2


@pytest.mark.parametrize("out", ["trained", "small"])
def test_an_unrecorded_output_is_taken_over(out: str, own_output: Path, shell: Shell) -> None:
    seen: list[str] = []

    def records(event: str, target: str) -> bool:
        seen.append(f"{event} {Path(target).name}")
        return seen[-1] == "os.rename recipe-state.json" and f"os.rename {out}" in seen

    killed("run", own_output, at=records, log=Path("log"))
    written = Path(out, "model.safetensors").read_bytes()
    said = shell("run", own_output)
    assert said.code == 0, said.err
    assert Path(out, "model.safetensors").read_bytes() == written
    assert ("finished already" in said.err) == (out == "trained")
    assert shell("run", own_output).err.count("unchanged, skipped") == 2


def test_the_output_of_a_stranger_is_kept(own_output: Path, pico_bert: Path, shell: Shell) -> None:
    killed("run", own_output, at=renames_to("small"), log=Path("log"))
    assert shell("shrink", pico_bert, "--layers", 2, "--out", "small").code == 0
    before = content_hash(Path("small"))
    said = shell("run", own_output)
    assert (said.code, "give --set shrink.force=true" in said.err) == (1, True), said.err
    assert content_hash(Path("small")) == before
    assert shell("run", own_output, "--set", "shrink.force=true").code == 0
    assert content_hash(Path("small")) != before


def test_an_older_output_is_not_taken_over(own_output: Path, shell: Shell) -> None:
    assert shell("run", own_output, "--set", "distill.out=own-run/distill").code == 0
    Path("text").write_text("\n".join(pico.sentences(70, seed=1)))
    arguments = ("run", own_output, "--set", "distill.out=own-run/distill")
    killed(*arguments, at=lambda event, target: target.endswith("distill.partial/.lock"), log=Path("log"))
    said = shell(*arguments, "--set", "shrink.force=true")
    assert said.code == 0, said.err
    assert "finished already" not in said.err


def test_a_training_of_another_request_makes_room(own_output: Path, shell: Shell) -> None:
    killed("run", own_output, at=renames_to("trained.partial/state-00000004"), log=Path("log"))
    said = shell("run", own_output, "--set", "distill.lr=1e-3")
    assert (said.code, "give --set distill.force=true" in said.err) == (1, True), said.err
    said = shell("run", own_output)
    assert (said.code, "going on from step 2" in said.err) == (0, True), said.err
    Path("trained").rename("elsewhere")
    killed("run", own_output, at=renames_to("trained.partial/state-00000004"), log=Path("log"))
    said = shell(
        "run", own_output, "--set", "distill.lr=1e-3", "--set", "distill.force=true", "--set", "shrink.force=true"
    )
    assert (said.code, "going on" in said.err) == (0, False), said.err


def test_an_interrupted_training_is_kept(own_output: Path, shell: Shell) -> None:
    """Also in the run's directory; options that a resumed training may have otherwise are none of another request."""
    words = ("run", own_output, "--set", "distill.out=own-run/distill")
    state = Path("own-run/distill.partial/state-00000002/progress.json")
    killed(*words, at=renames_to("own-run/distill.partial/state-00000004"), log=Path("log"))
    said = shell(*words, "--set", "distill.lr=1e-3")
    assert (said.code, "give --set distill.force=true" in said.err) == (1, True), said.err
    state.write_text(json.dumps({**json.loads(state.read_text()), "failed": True}))
    said = shell(*words, "--set", "distill.seed=1")
    assert (said.code, "other values of seed" in said.err) == (1, True), said.err
    said = shell(*words, "--set", "distill.lr=1e-3", "--set", "distill.save_every=3")
    assert (said.code, "going on from step 2" in said.err) == (0, True), said.err
    again = shell(*words, "--set", "distill.lr=1e-3", "--set", "distill.workers=1")
    assert again.err.count("unchanged, skipped") == 2, again.err


def test_a_search_that_was_not_recorded_is_repeated(pico_bert: Path, shell: Shell) -> None:
    Path("data").mkdir()
    for split in ("train", "dev"):
        write(Path("data", f"{split}.tsv"), "The\tO\ncarcino\tB-Disease\nmatis\tI-Disease\n\n" * 4)
    path = write(
        Path("s.toml"),
        f'[finetune]\ncheckpoint = "{pico_bert}"\ndata = "data"\nsteps = 1\nseeds = 2\nprecision = "fp32"\n',
    )
    seen: list[str] = []

    def records(event: str, target: str) -> bool:
        seen.append(f"{event} {Path(target).name}")
        return seen[-1] == "os.rename recipe-state.json" and "os.rename finetune" in seen

    killed("run", path, at=records, log=Path("log"))
    said = shell("run", path)
    assert said.code == 0, said.err
    assert shell("run", path).err.count("unchanged, skipped") == 1


@pytest.mark.parametrize(
    "text",
    [
        *("[]", "{", '{"distill": 1}', '{"distill": {"path": 1}}', '{"distill": {"path": "x"}}'),
        *('{"distill": {"results": 1}}', '{"distill": {"results": [1]}}'),
    ],
)
def test_a_damaged_state_file_is_explained(text: str, own_output: Path, shell: Shell) -> None:
    Path("own-run").mkdir()
    write(Path("own-run/recipe-state.json"), text)
    said = shell("run", own_output)
    assert (said.code, "recipe-state.json" in said.err) == (1, True), said.err
    assert len(said.err.splitlines()) == 1
