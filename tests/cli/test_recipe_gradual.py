"""`steps_of` of a shrink step: cuts and trainings in turn, one recipe, resumable."""

import json
from pathlib import Path

import pytest
import transformers
from hypothesis import given
from hypothesis import strategies as st

from biosqueeze.cli.recipe_file import read_recipe
from biosqueeze.cli.recipe_gradual import with_repeated_cuts
from biosqueeze.errors import UsageError
from biosqueeze.models.cuts.gradual import check_steps, next_size, next_widths
from biosqueeze.models.cuts.width import Widths, choose_widths
from tests import pico
from tests.cli.run import Shell
from tests.kills import killed, renames_to

CUT = '[cut]\nstage = "shrink"\ncheckpoint = "@start"\nsteps_of = 3\nlayers = "1"\nffn = 16\n'
TEXT = f"""
[start]
stage = "finetune"
{CUT}
[student]
stage = "distill"
teacher = ["@start"]
lr = 1e-3
[again]
stage = "distill"
checkpoint = "@student"
teacher = ["@start", "@student"]
[bench]
checkpoints = ["@start", "@student"]
"""


def expanded(path: Path, text: str, *overrides: str) -> list:
    path.write_text(text)
    return with_repeated_cuts(path, read_recipe(path, overrides))


def test_a_gradual_cut_becomes_pairs_of_steps(tmp_path: Path) -> None:
    steps = expanded(tmp_path / "r.toml", TEXT, "student.lr=1e-4", "cut.seed=1")
    assert [step.name for step in steps][:7] == ["start", "cut-1", "student-1", "cut-2", "student-2", "cut", "student"]
    by_name = {step.name: step for step in steps}
    cuts = [by_name[name] for name in ("cut-1", "cut-2", "cut")]
    assert [cut.overrides for cut in cuts] == [{"seed": ["1"], "steps_of": [left]} for left in "321"]
    assert [cut.table.get("checkpoint") for cut in cuts] == ["@start", None, None]
    assert by_name["student-2"].overrides == {"lr": ["1e-4"]} and by_name["student-2"].table["teacher"] == ["@start"]
    assert by_name["bench"].table["checkpoints"] == ["@start", "@student-1", "@student-2", "@student"]
    assert by_name["again"].table["teacher"] == ["@start", "@student"]  # the last one: only tables of checkpoints grow
    assert by_name["again"].table["checkpoint"] == "@student"


def test_a_list_that_is_set_has_every_training(tmp_path: Path) -> None:
    steps = expanded(tmp_path / "r.toml", TEXT, "bench.checkpoints=t", "bench.checkpoints=@student")
    assert steps[-1].overrides == {"checkpoints": ["t", "@student-1", "@student-2", "@student"]}


def test_the_number_of_steps_can_be_set(tmp_path: Path) -> None:
    assert len(expanded(tmp_path / "r.toml", TEXT, "cut.steps_of=5")) == 13
    assert len(expanded(tmp_path / "r.toml", TEXT, "cut.steps_of=1")) == 5
    for value in ("5.0", "'05'", "' 5'"):
        assert len(expanded(tmp_path / "r.toml", TEXT.replace("steps_of = 3", f"steps_of = {value}"))) == 13


def test_a_variable_sets_the_number_of_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIOSQUEEZE_SHRINK_STEPS_OF", "2")
    steps = expanded(tmp_path / "r.toml", TEXT)
    assert [step.overrides.get("steps_of") for step in steps if step.stage == "shrink"] == [["2"], ["1"]]
    assert len(expanded(tmp_path / "r.toml", TEXT, "cut.steps_of=5")) == 13


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (CUT, r"\[cut\] cuts in 3 steps .* a training must follow"),
        (f'{CUT}[bench]\ncheckpoints = ["@cut"]', "a training must follow"),
        (f'{CUT}[student]\nstage = "distill"\n[cut-1]\nstage = "evaluate"', r"\[cut-1\] is also the name"),
        (
            f'[b-1]\nstage = "finetune"\n{CUT}[student]\nstage = "distill"\n'
            f'{CUT.replace("[cut]", "[b]")}[last]\nstage = "distill"',
            r"\[b-1\] is also the name",
        ),
        (f'{CUT}[student]\nstage = "distill"\nout = "x"', r"\[student\] is repeated, so it cannot have one out"),
    ],
)
def test_impossible_gradual_recipes_are_explained(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        expanded(tmp_path / "r.toml", text)


@pytest.mark.parametrize(
    ("now", "target", "steps", "multiple", "sizes"),
    [
        (1536, 960, 3, 64, [1344, 1152, 960]),
        (12, 9, 3, 1, [11, 10, 9]),
        (6, 3, 2, 1, [4, 3]),
        (100, 96, 3, 64, [99, 98, 96]),
    ],
)
def test_sizes_fall_in_equal_steps(now: int, target: int, steps: int, multiple: int, sizes: list[int]) -> None:
    seen = [now]
    for left in range(steps, 0, -1):
        seen.append(target if left == 1 else next_size(seen[-1], target, left, multiple))
    assert seen[1:] == sizes


@given(
    steps=st.integers(1, 12), target=st.integers(1, 400), more=st.integers(0, 400), multiple=st.sampled_from([1, 64])
)
def test_every_step_cuts_where_there_is_enough(steps: int, target: int, more: int, multiple: int) -> None:
    now = target + steps + more
    for left in range(steps, 1, -1):
        size = next_size(now, target, left, multiple)
        assert target < size < now
        now = size
    assert target < now


@given(heads=st.integers(2, 16), refused=st.integers(1, 16), data=st.data())
def test_every_step_cuts_heads_of_an_electra(heads: int, refused: int, data: st.DataObject) -> None:
    target = data.draw(st.integers(1, heads - 1).filter(lambda size: size != refused), "target")
    possible = [size for size in range(target, heads) if size != refused]
    steps = data.draw(st.integers(1, len(possible)), "steps")
    config = transformers.ElectraConfig(hidden_size=heads * 8, num_attention_heads=heads, embedding_size=refused * 8)
    with pytest.raises(UsageError, match=f"give --steps-of {len(possible)}"):
        check_steps(config, None, Widths(heads=target), len(possible) + 1)
    for left in range(steps, 0, -1):
        check_steps(config, None, Widths(heads=target), left)
        kept = next_widths(config, Widths(heads=target), left).heads
        assert kept in possible and kept < config.num_attention_heads
        config.num_attention_heads, config.hidden_size = kept, kept * 8
    assert kept == target


@pytest.mark.parametrize(("hidden", "steps"), [(240, 3), (240, 9), (180, 5)])
def test_narrower_heads_stay_as_many_on_the_way(hidden: int, steps: int) -> None:
    config = transformers.BertConfig(hidden_size=384, num_attention_heads=12)
    for left in range(steps, 0, -1):
        target = choose_widths(config, None, None, hidden)
        check_steps(config, None, target, left)
        size = next_widths(config, target, left).head_size
        assert size and hidden <= 12 * size < config.hidden_size
        config.hidden_size = 12 * size
    assert config.hidden_size == hidden


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--layers", "every-other", "--steps-of", 2), "needs a number of layers"),
        (("--width", 0.5, "--steps-of", 2), "give --layers, --ffn, --heads or --hidden"),
        (("--speedup", 2, "--steps-of", 2), "--speedup"),
        (("--layers", 3, "--steps-of", 9), "give --steps-of 1"),
        (("--layers", 2, "--steps-of", 3), "more than the 2 layers"),
        (("--layers", 4, "--steps-of", 3), "nothing would be cut"),
        (("--layers", 2, "--heads", 2, "--steps-of", 3), "give --steps-of 2"),
        (("--layers", 9, "--steps-of", 2), "--layers 9 of 4 cannot be kept"),
        (("--layers", 0, "--steps-of", 2), "--layers 0 of 4 cannot be kept"),
        (("--layers", "²", "--steps-of", 2), "is neither a number"),
        (("--layers", 2, "--steps-of", 0), "--steps-of"),
    ],
)
def test_impossible_steps_are_explained(shell: Shell, pico_bert: Path, words: tuple, says: str) -> None:
    said = shell("shrink", pico_bert, *words)
    assert (said.code, len(said.err.splitlines())) == (2, 1)
    assert says in said.err


def test_more_steps_than_layers_stop_before_training(shell: Shell, pico_bert: Path, tmp_path: Path) -> None:
    (path := tmp_path / "r.toml").write_text(
        f'[start]\nstage = "finetune"\ncheckpoint = "{pico_bert}"\ndata = "demo:ner"\n'
        '[cut]\nstage = "shrink"\nlayers = "2"\nsteps_of = 8\n[student]\nstage = "distill"\nteacher = ["@start"]\n'
    )
    for mode in ((), ("--dry-run",)):
        said = shell("run", path, *mode)
        assert said.code == 2 and "[cut-1]: --steps-of 8 is more than the 2 layers" in said.err
    assert shell("run", path, "--dry-run", "--set", "cut.steps_of=2").code == 0


def test_an_interrupted_gradual_cut_equals_an_uninterrupted(shell: Shell, pico_bert: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("\n".join(pico.sentences(60)))
    path = tmp_path / "r.toml"
    path.write_text(
        f'[cut]\nstage = "shrink"\ncheckpoint = "{pico_bert}"\nlayers = "2"\nffn = 32\nheads = 2\nsteps_of = 2\n'
        f'[student]\nstage = "distill"\nteacher = "{pico_bert}"\ncorpus = ["text"]\nsteps = 5\nsave_every = 2\n'
        'precision = "fp32"\n'
    )
    assert shell("run", path, "--out", "whole").code == 0
    killed("run", path, "--out", "cut-off", at=renames_to("cut-off/student.partial/state-00000004"), log=Path("log"))
    said = shell("run", path, "--out", "cut-off")
    assert said.code == 0, said.err
    assert said.err.count("unchanged, skipped") == 3
    for name in ("student-1", "student"):
        both = [Path(run, name, "model.safetensors").read_bytes() for run in ("whole", "cut-off")]
        assert both[0] == both[1]
    configs = [json.loads(Path("whole", name, "config.json").read_text()) for name in ("cut-1", "student")]
    assert [config["num_hidden_layers"] for config in configs] == [3, 2]
    assert [config["intermediate_size"] for config in configs] == [48, 32]
    assert [config["num_attention_heads"] for config in configs] == [3, 2]
    history = json.loads(Path("whole/student/biosqueeze.json").read_text())["history"]
    assert [entry["stage"] for entry in history[-4:]] == ["shrink", "distill", "shrink", "distill"]
