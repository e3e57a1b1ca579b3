"""Many fine-tunings, each in a process of its own: side by side, skipped when done, resumed when interrupted."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Literal, NoReturn

from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.command_line import option_defaults, option_flags
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.files import content_hash, read_json, write_json
from biosqueeze.manifest import read_manifest
from biosqueeze.output import has_state
from biosqueeze.progress import note, track
from biosqueeze.training.fingerprint import INCIDENTAL

Keep = Literal["all", "best", "none"]

COMMAND = (sys.executable, "-m", "biosqueeze")


@dataclass(frozen=True)
class FineTuningRun:
    """One fine-tuning, and the scoring of its test split where that is asked for."""

    name: str  # for messages: "ncbi-disease, seed 0"
    checkpoint: str
    directory: Path  # where the trained checkpoint goes
    options: Mapping[str, Any]  # of finetune, by field name, without out
    group: str = ""  # runs of which one is looked for
    inputs: Mapping[str, str] = field(default_factory=dict)  # hashes of its weights and data; `execute` fills it
    test: bool = True

    @property
    def record(self) -> Path:
        """The file that remains of it: its options and its scores."""
        return self.directory.with_name(self.directory.name + ".json")

    @property
    def log(self) -> Path:
        """What its processes said."""
        return self.directory.with_name(self.directory.name + ".log")


@dataclass(frozen=True)
class RunResult:
    """What a run came to."""

    options: Mapping[str, Any]
    dev: Mapping[str, Any]  # scores of the best checkpoint, and how long it took to train
    test: Mapping[str, Any] | None = None

    @property
    def seconds(self) -> float:
        """Of training, the scoring of dev included."""
        return float(self.dev.get("seconds", 0.0))

    @property
    def metric(self) -> str:
        """By what the best checkpoint was kept."""
        return str(self.dev["judged_by"])

    @property
    def dev_score(self) -> float:
        """The best score on dev."""
        return float(self.dev[self.metric])


@dataclass
class _Crew:
    """The processes that run now, and the devices that are free."""

    devices: SimpleQueue[dict[str, str]] = field(default_factory=SimpleQueue)
    running: set["subprocess.Popen[str]"] = field(default_factory=set)
    stopping: threading.Event = field(default_factory=threading.Event)

    def interrupt(self) -> None:
        """Tell every process, once, to save its state and end."""
        self.stopping.set()
        for process in list(self.running):
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)


def execute(runs: Sequence[FineTuningRun], *, jobs: int | None = None, keep: Keep = "none") -> list[RunResult]:
    """Do all runs, `jobs` at a time, and give their results in the order of the runs.

    A run whose record is there is skipped; one whose training was interrupted goes on from its saved state.

    Args:
        runs: what to do.
        jobs: how many at a time; one per GPU, or one where there is none, if left out. On a CPU each gets its share
            of the cores, so that many small models train faster side by side than one after the other.
        keep: which checkpoints to leave: all, the one of each group that is best on dev, or none but the records.

    Raises:
        SqueezeError: a run failed; the message is its own. Those that were running are finished first.
        KeyboardInterrupt: Ctrl-C; every run has saved its state.
    """
    crew = _Crew()
    places = _places(jobs)
    for place in places:
        crew.devices.put(place)
    runs = _with_inputs(runs)
    results: dict[int, RunResult] = {}
    with (
        _terminated_like_interrupted(),
        ThreadPoolExecutor(max_workers=len(places)) as pool,
        track("runs", len(runs)) as bar,
    ):
        futures = {pool.submit(_do, run, crew): number for number, run in enumerate(runs)}
        try:
            for future in _finished(futures):
                result = future.result()
                if result is None:  # another one failed, whose turn comes
                    continue
                results[futures[future]] = result
                bar.advance()
                _tidy(runs, results, keep)
        except KeyboardInterrupt:
            _interrupt(crew, pool)
        except BaseException:
            if crew.running:
                note(f"a run failed; waiting for {len(crew.running)} others to end (Ctrl-C stops them too)")
            try:
                pool.shutdown(cancel_futures=True)
            except KeyboardInterrupt:
                _interrupt(crew, pool)
            raise
    return [results[number] for number in range(len(runs))]


def _interrupt(crew: "_Crew", pool: ThreadPoolExecutor) -> NoReturn:
    """Hand a Ctrl-C on, and wait until all have saved their states."""
    crew.interrupt()
    pool.shutdown(cancel_futures=True)
    raise KeyboardInterrupt("every run has saved its state; repeat the command to go on") from None


def _with_inputs(runs: Sequence[FineTuningRun]) -> list[FineTuningRun]:
    """The runs with the hashes of what they are made of, each computed once."""
    weights = {name: open_checkpoint(name).weights_sha256() for name in {run.checkpoint for run in runs}}
    places = {str(run.options["data"]): Path(str(run.options["data"])).expanduser() for run in runs}
    data = {name: {"data": content_hash(path)} if path.exists() else {} for name, path in places.items()}
    return [
        replace(run, inputs={"checkpoint": weights[run.checkpoint], **data[str(run.options["data"])]}) for run in runs
    ]


@contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """Make SIGTERM and SIGHUP a KeyboardInterrupt, so that no run goes on without us."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    kinds = [kind for name in ("SIGTERM", "SIGHUP") if (kind := getattr(signal, name, None)) is not None]
    heard = [kind for kind in kinds if signal.getsignal(kind) is not signal.SIG_IGN]  # nohup has a hang-up ignored
    former = {kind: signal.signal(kind, interrupt) for kind in heard}
    try:
        yield
    finally:
        for kind, handler in former.items():
            signal.signal(kind, handler)


def _finished(futures: "Mapping[Future[RunResult | None], int]") -> "Iterator[Future[RunResult | None]]":
    """Futures as they end; woken now and then, so that Ctrl-C is heard."""
    left = set(futures)
    while left:
        done, left = wait(left, timeout=0.5, return_when=FIRST_COMPLETED)
        yield from done


def _places(jobs: int | None) -> list[dict[str, str]]:
    """The environment of each run that goes side by side: its GPU, or its share of the cores."""
    if jobs is not None and jobs < 1:
        raise UsageError(f"--jobs must be at least 1, not {jobs}")
    gpus = _gpus()
    count = jobs or max(1, len(gpus))
    if gpus:
        return [{"CUDA_VISIBLE_DEVICES": gpus[i % len(gpus)]} for i in range(count)]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return [{"OMP_NUM_THREADS": str(max(1, cores // count))} if count > 1 else {} for _ in range(count)]


def _gpus() -> list[str]:
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name for name in named.split(",") if name.strip() not in ("", "-1")]
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]


def _do(run: FineTuningRun, crew: _Crew) -> RunResult | None:
    """The result of a run; None where it was not begun because another one failed."""
    if crew.stopping.is_set():
        return None
    done = _recorded(run)
    if done is None:
        place = crew.devices.get()
        try:
            done = _work(run, crew, place)
        except BaseException:
            crew.stopping.set()  # before another run is begun
            raise
        finally:
            crew.devices.put(place)
        _say(run, done)
    return done


def _tidy(runs: Sequence[FineTuningRun], results: Mapping[int, RunResult], keep: Keep) -> None:
    """Remove the checkpoints that are not to be kept, of the runs that have ended so far."""
    best: dict[str, int] = {}
    for number in sorted(results) if keep == "best" else ():
        group = runs[number].group
        if group not in best or results[number].dev_score > results[best[group]].dev_score:
            best[group] = number
    for number in results if keep != "all" else ():
        if number not in best.values() and runs[number].directory.exists():
            shutil.rmtree(runs[number].directory)


def _say(run: FineTuningRun, result: RunResult) -> None:
    # The score of a label that no test example has is not there.
    test = f", test {result.test['metrics'].get(result.metric, 0.0):.4f}" if result.test else ""
    note(f"{run.name}: {result.metric} on dev {result.dev_score:.4f}{test}, {result.seconds / 60:.1f} min")


def _recorded(run: FineTuningRun) -> RunResult | None:
    """The result of a run that is done."""
    if not run.record.is_file():
        return None
    told = read_json(run.record)
    _check_same(run, told["options"], dict.fromkeys(told["options"], "flag"), run.record)
    _check_inputs(run, told.get("inputs", {}), run.record)
    return RunResult(told["options"], told["dev"], told["test"]) if told["test"] or not run.test else None


def _work(run: FineTuningRun, crew: _Crew, place: Mapping[str, str]) -> RunResult:
    if not run.directory.is_dir():
        resume = has_state(run.directory.with_name(run.directory.name + ".partial"))
        arguments = [
            *option_flags(run.options, option_defaults("finetune")),
            "--out",
            str(run.directory),
            *(["--resume"] if resume else ["--force"]),
        ]
        _call(run, crew, place, ["finetune", run.checkpoint, *arguments])
    written = read_manifest(run.directory)
    if written is None:
        raise SqueezeError(f"{run.directory} is no checkpoint of biosqueeze; remove it, or name another --out")
    entry = written.history[-1]
    _check_same(run, entry.options, entry.sources, run.directory)
    _check_inputs(run, {"checkpoint": entry.parent.sha256}, run.directory)
    test = json.loads(_call(run, crew, place, ["evaluate", str(run.directory), "--json"])) if run.test else None
    judged_by = (written.task and written.task.metric) or "f1"
    result = RunResult(dict(run.options), {**written.metrics, "judged_by": judged_by}, test)
    write_json(run.record, {"checkpoint": run.checkpoint, "inputs": dict(run.inputs), **vars(result)})
    return result


def _check_same(run: FineTuningRun, options: Mapping[str, Any], sources: Mapping[str, str], where: Path) -> None:
    """What is there must have been made with the options of this run."""
    given = {name for name, source in sources.items() if source != "default"}
    names = (given | set(run.options)) - INCIDENTAL - {"checkpoint"}  # its weights are compared
    changed = [name for name in sorted(names) if not _alike(options.get(name), run.options.get(name))]
    if changed:
        raise SqueezeError(
            f"{where} was made with other values of {', '.join(changed)}; give another --out, or remove it"
        )


def _check_inputs(run: FineTuningRun, known: Mapping[str, str], where: Path) -> None:
    """What is there must have been made of the same weights and data, whatever their names."""
    others = [name for name, value in run.inputs.items() if known.get(name, value) != value]
    if others:
        raise SqueezeError(
            f"{where} was made when the {' and the '.join(others)} of {run.name} had other content; give another "
            "--out, or remove it"
        )


def _alike(a: Any, b: Any) -> bool:
    return (list(a) if isinstance(a, tuple) else a) == (list(b) if isinstance(b, tuple) else b)


def _call(run: FineTuningRun, crew: _Crew, place: Mapping[str, str], arguments: Sequence[str]) -> str:
    """Run one command of ours; its standard output.

    A session of its own keeps the terminal's Ctrl-C from it: it is told by us, exactly once.
    """
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("BIOSQUEEZE_FINETUNE_", "BIOSQUEEZE_EVAL"))}
    run.log.parent.mkdir(parents=True, exist_ok=True)
    with run.log.open("a", encoding="utf-8") as log:
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**environment, **place},
            start_new_session=True,
        )
        crew.running.add(process)
        try:
            output, _ = process.communicate()
        finally:
            crew.running.discard(process)
    if process.returncode:
        raise _failure(run, process.returncode)
    return output


def _failure(run: FineTuningRun, code: int) -> SqueezeError:
    said = run.log.read_text(encoding="utf-8").strip().splitlines()
    last = said[-1].removeprefix("error: ") if said else "it said nothing"
    kind: Callable[[str], SqueezeError] = UsageError if code == UsageError.exit_code else SqueezeError
    return kind(f"{run.name}: {last} (exit code {code}; all that it said: {run.log})")
