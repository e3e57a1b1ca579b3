"""Many runs: in order, side by side, skipped when finished, resumed when interrupted, with errors explained."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.finetuning import run_processes, runs
from biosqueeze.finetuning.run_processes import slots_for
from biosqueeze.finetuning.runs import FineTuningRun, check_existing, execute
from tests.manifests import manifest_json

# Behaves like `biosqueeze finetune` and `biosqueeze evaluate`, without training anything.
STAND_IN = textwrap.dedent(
    """
    import json, os, pathlib, signal, sys, time
    verb, target, *rest = sys.argv[1:]
    calls = pathlib.Path(os.environ["CALLS"])
    with calls.open("a") as file:
        file.write(json.dumps([verb, target, *rest, os.environ.get("OMP_NUM_THREADS")]) + "\\n")
    flags = {rest[i][2:].replace("-", "_"): rest[i + 1] for i in range(0, len(rest) - 1) if rest[i].startswith("--")}
    if verb == "finetune":
        out = pathlib.Path(flags["out"])
        if flags["seed"] == os.environ.get("FAILS"):
            print(os.environ.get("SAYS", "error: the data are broken; mend them"), file=sys.stderr, flush=True)
            if "SIGNAL" in os.environ:
                os.kill(os.getpid(), int(os.environ["SIGNAL"]))
            sys.exit(int(os.environ.get("CODE", "1")))
        if "WAITS" in os.environ:
            state = out.with_name(out.name + ".partial") / "state-00000001"
            def save(*_):
                state.mkdir(parents=True)
                (state / "signals").write_text("one")
                (state / "progress.json").write_text("{}")
                sys.exit(130)
            signal.signal(signal.SIGINT, save)
            pathlib.Path(os.environ["WAITS"]).touch()
            time.sleep(60)
        out.mkdir(parents=True)
        options = {"lr": float(flags["lr"]), "seed": int(flags["seed"]), "data": flags["data"], "epochs": 5.0}
        sources = {"lr": "flag", "seed": "flag", "data": "flag", "epochs": "default"}
        metrics = {"f1": options["lr"] + options["seed"] / 100, "seconds": 60}
        manifest = json.loads(os.environ["MANIFEST"])
        parents = {"parent": {"name": "teacher", "sha256": "first"}}
        inputs = {"data": "first", "config and tokenizer": "first"}
        made = {"options": options, "sources": sources, "parents": parents, "inputs": inputs}
        manifest["history"][0] |= made
        manifest |= {"task": {"name": "ner", "metric": "f1"}, "metrics": metrics}
        (out / "biosqueeze.json").write_text(json.dumps(manifest))
    else:
        print(json.dumps({"metrics": {"f1": 0.5}}))
    """
)


# No checkpoint that the second --keep asks for is gone.
PRESENT = [("all", "all", ""), ("best", "best", ""), ("none", "none", ""), ("all", "best", "")]


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[list[str]]]:
    script = tmp_path / "stand_in.py"
    script.write_text(STAND_IN)
    log = tmp_path / "calls.jsonl"
    monkeypatch.setattr(run_processes, "COMMAND", (sys.executable, str(script)))
    monkeypatch.setattr(runs, "_with_inputs", list)  # there are no checkpoint files
    monkeypatch.setenv("CALLS", str(log))
    monkeypatch.setenv("MANIFEST", json.dumps(manifest_json()))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    return lambda: [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def make(root: Path, count: int = 3, lr: float = 0.1, **changes: object) -> list[FineTuningRun]:
    return [
        FineTuningRun(
            f"run {seed}", "teacher", root / "runs" / f"seed-{seed}", {"data": "d", "lr": lr, "seed": seed}, **changes
        )
        for seed in range(count)
    ]


def test_results_come_in_the_order_of_the_runs(tmp_path: Path, calls: Callable) -> None:
    results = execute(make(tmp_path), jobs=2)
    assert [result.options["seed"] for result in results] == [0, 1, 2]
    assert [result.dev_score for result in results] == pytest.approx([0.1, 0.11, 0.12])
    assert all(result.test == {"metrics": {"f1": 0.5}} for result in results)
    assert all(result.seconds == 60 for result in results)
    assert [call[0] for call in calls()].count("finetune") == 3
    assert {call[-1] for call in calls()} == {str(max(1, len(os.sched_getaffinity(0)) // 2))}


def test_finished_runs_are_skipped(tmp_path: Path, calls: Callable) -> None:
    first = execute(make(tmp_path))
    before = calls()
    assert execute(make(tmp_path)) == first
    assert calls() == before
    with pytest.raises(SqueezeError, match="other values of lr"):
        execute(make(tmp_path, lr=0.2))


@pytest.mark.parametrize("name", ["checkpoint", "config and tokenizer", "data"])
def test_finished_runs_of_other_content_are_refused(name: str, tmp_path: Path, calls: Callable) -> None:
    inputs = dict.fromkeys(("checkpoint", "config and tokenizer", "data"), "first")
    first = execute(make(tmp_path, 1, inputs=inputs), keep="all")
    assert execute(make(tmp_path, 1, inputs=inputs)) == first
    (changed,) = make(tmp_path, 1, inputs={**inputs, name: "second"})
    with pytest.raises(SqueezeError, match=f"was made when the {name} of run 0 had other content"):
        execute([changed])
    changed.record.unlink()  # as after a kill between training and evaluation
    with pytest.raises(SqueezeError, match=f"the {name} of run 0 had other content"):
        execute([changed])
    execute(make(tmp_path, 1, inputs=inputs))


def test_finished_runs_on_another_dev_split_are_refused(pico_bert: Path, tmp_path: Path) -> None:
    """As of a search that was interrupted, and is repeated with another --seed."""
    options = {"data": "demo:ner", "dev_share": 0.1, "seed": 1}
    made = [
        FineTuningRun("seed=1", str(pico_bert), tmp_path / "seed-1", options, test=False, split_seed=seed)
        for seed in (0, 1)
    ]
    first, second = runs._with_inputs(made)
    dev = {"metric": "f1", "f1": 0.5}
    first.record.write_text(json.dumps({"options": options, "dev": dev, "test": None, "inputs": dict(first.inputs)}))
    check_existing([first])
    with pytest.raises(SqueezeError, match="was made when the dev split of seed=1 had other content"):
        check_existing([second])


def test_inputs_are_hashes_of_weights_and_data(pico_bert: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.tsv").write_text("a\tO\n")
    given = [
        FineTuningRun(name, str(pico_bert), tmp_path, {"data": name}) for name in (str(tmp_path / "data"), "demo:ner")
    ]
    first = [run.inputs for run in runs._with_inputs(given)]
    weights = open_checkpoint(str(pico_bert)).weights_sha256()
    model = {"checkpoint", "config and tokenizer"}
    assert [set(inputs) for inputs in first] == [{*model, "data"}, model]
    assert {inputs["checkpoint"] for inputs in first} == {weights}
    for made in ("data/teacher-ner.runs/seed-0", "data/teacher-ner.partial"):  # outputs in the folder of the data
        (tmp_path / made).mkdir(parents=True)
        (tmp_path / made / "state").touch()
    assert runs._with_inputs(given)[0].inputs == first[0]
    (tmp_path / "data" / "train.tsv").write_text("b\tO\n")
    assert runs._with_inputs(given)[0].inputs["data"] != first[0]["data"]


def test_a_record_without_test_scores_is_completed(tmp_path: Path, calls: Callable) -> None:
    execute(make(tmp_path, 1, test=False), keep="all")
    assert [call[0] for call in calls()] == ["finetune"]
    assert execute(make(tmp_path, 1), keep="all")[0].test
    assert [call[0] for call in calls()] == ["finetune", "evaluate"]


@pytest.mark.parametrize(
    ("keep", "left"), [("none", []), ("best", ["seed-2"]), ("all", ["seed-0", "seed-1", "seed-2"])]
)
def test_only_wanted_checkpoints_are_kept(keep: str, left: list[str], tmp_path: Path, calls: Callable) -> None:
    execute(make(tmp_path), keep=keep)
    assert sorted(path.name for path in (tmp_path / "runs").iterdir() if path.is_dir()) == left


def test_no_run_starts_beside_one_with_other_options(tmp_path: Path, calls: Callable) -> None:
    execute(make(tmp_path, 2)[1:])
    before = calls()
    with pytest.raises(SqueezeError, match=r"seed-1\.json was made with other values of lr"):
        execute(make(tmp_path, 3, lr=0.2))
    assert calls() == before


@pytest.mark.parametrize(("first", "second", "left"), [("all", "none", 3), ("all", "best", 3), ("best", "none", 1)])
def test_kept_checkpoints_stay(
    first: str, second: str, left: int, tmp_path: Path, calls: Callable, capsys: pytest.CaptureFixture[str]
) -> None:
    execute(make(tmp_path), keep=first)
    execute(make(tmp_path), keep=second)
    assert sum(path.is_dir() for path in (tmp_path / "runs").iterdir()) == left
    assert capsys.readouterr().err.count(f"stays: it was made with --keep {first}") == left


@pytest.mark.parametrize(
    ("first", "second", "count"),
    [("none", "all", "3 checkpoints"), ("best", "all", "2 checkpoints"), ("none", "best", "1 checkpoint"), *PRESENT],
)
@pytest.mark.usefixtures("calls")
def test_checkpoints_that_are_gone_are_said_once(
    first: str, second: str, count: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    execute(make(tmp_path), keep=first)
    execute(make(tmp_path), keep=second)
    said = " ".join(capsys.readouterr().err.split())
    assert said.count("warning:") == bool(count)
    if count:
        assert f"--keep {second} finds {count} removed, because of the earlier --keep {first}; to train again" in said
    gone = [run for run in make(tmp_path) if not run.directory.is_dir()]
    for run in gone:
        run.record.unlink()
    execute(make(tmp_path), keep=second)
    assert "warning" not in capsys.readouterr().err


def test_an_existing_checkpoint_is_only_evaluated(tmp_path: Path, calls: Callable) -> None:
    execute(make(tmp_path, 1), keep="all")
    (run,) = make(tmp_path, 1)
    run.record.unlink()
    execute([run], keep="all")
    assert [call[0] for call in calls()] == ["finetune", "evaluate", "evaluate"]
    run.record.unlink()
    with pytest.raises(SqueezeError, match="other values of epochs"):
        execute([FineTuningRun(run.name, run.checkpoint, run.directory, {**run.options, "epochs": 6.0})])


@pytest.mark.parametrize(("code", "kind"), [("1", SqueezeError), ("2", UsageError)])
def test_a_failed_run_raises_its_own_message(
    code: str, kind: type, tmp_path: Path, calls: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAILS", "1")
    monkeypatch.setenv("CODE", code)
    with pytest.raises(kind, match=r"run 1: the data are broken; mend them .*seed-1\.log") as caught:
        execute(make(tmp_path), jobs=1)
    assert type(caught.value) is kind
    assert [call[0] for call in calls()] == ["finetune", "evaluate", "finetune"]


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (signal.SIGKILL, r"run 0 was killed by signal 9 \(SIGKILL\), perhaps for lack of memory; the same command"),
        (signal.SIGTERM, r"run 0 was killed by signal 15 \(SIGTERM\); the same command goes on \(.*seed-0\.log\)"),
    ],
)
@pytest.mark.usefixtures("calls")
def test_a_killed_run_names_its_signal(number: int, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("FAILS", "0"), ("SAYS", "trained on 40 examples"), ("SIGNAL", str(int(number)))):
        monkeypatch.setenv(name, value)
    with pytest.raises(SqueezeError, match=says):
        execute(make(tmp_path, 1))


@pytest.mark.parametrize(
    ("says", "told"),
    [
        ("trained on 40 examples", "run 0: it ended without a message"),
        ("error: the disk is full\nstep 3", "run 0: the disk is full"),
        ("bug: KeyError: 'a'\nThis is an error in biosqueeze.", "run 0: bug: KeyError: 'a'"),
    ],
)
@pytest.mark.usefixtures("calls")
def test_progress_is_not_taken_for_an_error(
    says: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run,) = make(tmp_path, 1)
    run.log.parent.mkdir()
    run.log.write_text("error: of an earlier command\n")
    monkeypatch.setenv("FAILS", "0")
    monkeypatch.setenv("SAYS", says)
    with pytest.raises(SqueezeError) as caught:
        execute([run])
    assert str(caught.value) == f"{told} (exit code 1; its whole output: {run.log})"


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted_runs_get_one_signal_and_resume(how: int, tmp_path: Path, calls: Callable) -> None:
    said = interrupted(how, tmp_path)
    assert "saved its state" in said
    assert (tmp_path / "runs" / "seed-0.partial" / "state-00000001" / "signals").read_text() == "one"
    execute(make(tmp_path, 2), jobs=1)
    trained = [call for call in calls() if call[0] == "finetune"]
    assert [call[call.index("--resume") + 1] for call in trained] == ["auto"] * 3


@pytest.mark.usefixtures("calls")
def test_other_runs_can_be_interrupted_after_a_failure(tmp_path: Path) -> None:
    said = interrupted(signal.SIGINT, tmp_path, jobs=2, FAILS="1")
    assert "saved its state" in said
    assert (tmp_path / "runs" / "seed-0.partial" / "state-00000001").is_dir()


def interrupted(how: int, tmp_path: Path, jobs: int = 1, **environment: str) -> str:
    """Return the output of two runs, the first of which is interrupted during its training."""
    code = (
        "import signal, sys, pathlib; sys.path.insert(0, sys.argv[1]);"
        # A shell's background jobs start with SIGINT ignored, and those of nohup with SIGHUP.
        "signal.signal(signal.SIGINT, signal.default_int_handler); signal.signal(signal.SIGHUP, signal.SIG_DFL);"
        "from biosqueeze.finetuning import run_processes, runs; from tests.finetuning.test_runs import make;"
        "run_processes.COMMAND = (sys.executable, sys.argv[2]);"
        "runs._with_inputs = list;"
        "\ntry: runs.execute(make(pathlib.Path(sys.argv[3]), 2), jobs=int(sys.argv[4]))"
        "\nexcept KeyboardInterrupt as e: print(e); sys.exit(130)"
    )
    waiting = tmp_path / "waiting"
    root = str(Path(__file__).parents[2])
    arguments = [sys.executable, "-c", code, root, str(tmp_path / "stand_in.py"), str(tmp_path), str(jobs)]
    environ = {**os.environ, "WAITS": str(waiting), **environment}
    with subprocess.Popen(arguments, env=environ, stdout=subprocess.PIPE) as process:
        deadline = time.monotonic() + 60
        while not waiting.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.5 if environment else 0)  # the other run fails meanwhile
        process.send_signal(how)
        said = process.communicate(timeout=60)[0].decode()
    assert process.returncode == 130
    return said


def test_without_gpus_slots_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert len(slots_for(2)) == 2
    assert all(set(place) == {"OMP_NUM_THREADS"} for place in slots_for(2))


def test_gpus_are_assigned_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    assert slots_for(None) == [{"CUDA_VISIBLE_DEVICES": "3"}, {"CUDA_VISIBLE_DEVICES": "5"}]
    assert [place["CUDA_VISIBLE_DEVICES"] for place in slots_for(3)] == ["3", "5", "3"]


@pytest.mark.parametrize(("device", "gpu"), [("auto", "3"), ("cuda", "3"), ("cuda:1", None), ("cpu", None)])
def test_a_device_with_a_name_is_that_of_the_runs(
    device: str, gpu: str | None, tmp_path: Path, calls: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run to which one GPU is visible has no cuda:1."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    seen: list[tuple[str | None, list[str]]] = []

    def call(self: object, name: str, arguments: list[str], slot: dict[str, str], log: Path) -> str:
        seen.append((slot.get("CUDA_VISIBLE_DEVICES"), arguments[arguments.index("--device") :][:2]))
        return "{}"

    (tmp_path / "runs").mkdir()
    monkeypatch.setattr(run_processes.RunProcesses, "call", call)
    monkeypatch.setattr(runs, "_checked_manifest", lambda _run: SimpleNamespace(task=None, metrics={"f1": 0.5}))
    (run,) = make(tmp_path, 1)
    execute([replace(run, options={**run.options, "device": device})])
    assert seen == [(gpu, ["--device", device])] * 2


def test_a_run_that_starts_during_an_interrupt_ends_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    processes, start = run_processes.RunProcesses(), subprocess.Popen

    def started(*given: object, **options: object) -> "subprocess.Popen[str]":
        process = start(*given, **options)
        processes.interrupt()
        return process

    monkeypatch.setattr(run_processes, "COMMAND", ("sleep", "60"))
    monkeypatch.setattr(run_processes.subprocess, "Popen", started)
    with pytest.raises(SqueezeError, match="SIGINT"):
        processes.call("run 0", [], {}, tmp_path / "run.log")
