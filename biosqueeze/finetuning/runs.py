"""Many fine-tunings as subprocesses: side by side, skipped when done, resumed when interrupted. Torch-free."""

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NoReturn

from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.command_line import option_defaults, option_flags
from biosqueeze.errors import SqueezeError
from biosqueeze.files import content_hash, read_json, write_json
from biosqueeze.finetuning.run_processes import SPLIT_SEED, RunProcesses, Slot, interrupted_on_termination, slots_for
from biosqueeze.manifest import Manifest, read_manifest
from biosqueeze.options import AUTO_DEVICE
from biosqueeze.output import clean
from biosqueeze.progress import note, track, warn
from biosqueeze.training.resuming.fingerprint import INCIDENTAL
from biosqueeze.training.resuming.finished import CONFIG_AND_TOKENIZER, model_hash

KeepCheckpoints = Literal["all", "best", "none"]
_FEWER_TO_MORE: tuple[KeepCheckpoints, ...] = ("none", "best", "all")
_ANY_GPU = (AUTO_DEVICE, "cuda")  # values of --device that leave open which GPU


@dataclass(frozen=True)
class FineTuningRun:
    """One fine-tuning, and with `test` the evaluation on its test split."""

    name: str  # for messages: "ncbi-disease, seed 0"
    checkpoint: str
    directory: Path  # of the fine-tuned checkpoint
    options: Mapping[str, Any]  # of finetune, by field name, without out
    group: str = ""  # runs of which the best on dev is selected
    inputs: Mapping[str, str] = field(default_factory=dict)  # see `_with_inputs`; filled by `execute`
    test: bool = True
    split_seed: int | None = None  # that --dev-share is drawn with, in place of the run's own

    @property
    def record(self) -> Path:
        """Return the file with options and scores, which is kept when the checkpoint is removed."""
        return self.directory.with_name(self.directory.name + ".json")

    @property
    def device(self) -> str:
        """Return the value of --device."""
        return str(self.options.get("device", AUTO_DEVICE))

    @property
    def log(self) -> Path:
        """Return the file with the standard error of the subprocesses."""
        return self.directory.with_name(self.directory.name + ".log")


@dataclass(frozen=True)
class RunResult:
    """Options and scores of a finished run."""

    options: Mapping[str, Any]
    dev: Mapping[str, Any]  # scores of the best checkpoint, their metric, and the seconds of the training
    test: Mapping[str, Any] | None = None

    @property
    def seconds(self) -> float:
        """Return the time of the training, evaluations on dev included."""
        return float(self.dev.get("seconds", 0.0))

    @property
    def metric(self) -> str:
        """Return the name of the score by which the best checkpoint was kept."""
        return str(self.dev["metric"])

    @property
    def dev_score(self) -> float:
        """Return the best score on dev."""
        return float(self.dev[self.metric])


def execute(
    runs: Sequence[FineTuningRun], *, jobs: int | None = None, keep: KeepCheckpoints = "none"
) -> list[RunResult]:
    """Do all runs, `jobs` at a time, and return their results in the order of the runs.

    A run that has a record is skipped; a run whose training was interrupted resumes from its saved state.

    Args:
        runs: what to do.
        jobs: how many at a time; None: one per GPU, or one where there is none. On a CPU each gets its share of the
            cores, so that many small models train faster side by side than one after the other.
        keep: which checkpoints to keep: all, that of each group which is best on dev, or none.

    Raises:
        SqueezeError: a run was made before with other options or data, and none is started; or one failed: the message
            is its own, and the other runs that have started are finished first.
        KeyboardInterrupt: Ctrl-C; every run has saved its state.
    """
    processes = RunProcesses()
    slots = slots_for(jobs, on_any_gpu=all(run.device in _ANY_GPU for run in runs))
    for slot in slots:
        processes.slots.put(slot)
    runs = _with_inputs(runs)
    check_existing(runs)
    removable = [number for number, run in enumerate(runs) if _may_remove(run, keep)]
    results: dict[int, RunResult] = {}
    with (
        interrupted_on_termination(),
        ThreadPoolExecutor(max_workers=len(slots)) as pool,
        track("runs", len(runs)) as bar,
    ):
        futures = {pool.submit(_result_of, run, processes, keep): number for number, run in enumerate(runs)}
        try:
            for future in _completed(futures):
                result = future.result()
                if result is None:  # not started because another run failed; the error of that one follows
                    continue
                results[futures[future]] = result
                bar.advance()
                _remove_checkpoints(runs, {n: results[n] for n in removable if n in results}, keep)
        except KeyboardInterrupt:
            _interrupt(processes, pool)
        except BaseException:
            if processes.running:
                note(f"a run failed; waiting for {len(processes.running)} others to end (Ctrl-C stops them too)")
            try:
                pool.shutdown(cancel_futures=True)
            except KeyboardInterrupt:
                _interrupt(processes, pool)
            raise
    _warn_of_removed(runs, results, keep)
    return [results[number] for number in range(len(runs))]


def _interrupt(processes: RunProcesses, pool: ThreadPoolExecutor) -> NoReturn:
    """Interrupt all subprocesses, and wait until all have saved their states."""
    processes.interrupt()
    pool.shutdown(cancel_futures=True)
    raise KeyboardInterrupt("every run has saved its state; repeat the command to go on") from None


def _with_inputs(runs: Sequence[FineTuningRun]) -> list[FineTuningRun]:
    """Return the runs with the hashes of their models and data, each computed once, and the seed of the dev split."""
    models = {name: _model_hashes(name) for name in {run.checkpoint for run in runs}}
    paths = {str(run.options["data"]): Path(str(run.options["data"])).expanduser() for run in runs}
    data = {name: {"data": content_hash(path)} if path.exists() else {} for name, path in paths.items()}
    return [
        replace(run, inputs={**models[run.checkpoint], **data[str(run.options["data"])], **_split_of(run)})
        for run in runs
    ]


def _model_hashes(name: str) -> dict[str, str]:
    checkpoint = open_checkpoint(name)
    return {"checkpoint": checkpoint.weights_sha256(), CONFIG_AND_TOKENIZER: model_hash(checkpoint.path)}


def _split_of(run: FineTuningRun) -> dict[str, str]:
    """Return the seed that the dev split is drawn with, where it is not the run's own."""
    is_drawn = run.split_seed is not None and run.options.get("dev_share")
    return {"dev split": str(run.split_seed)} if is_drawn else {}


def _completed(futures: "Mapping[Future[RunResult | None], int]") -> "Iterator[Future[RunResult | None]]":
    """Yield futures as they complete; wake up twice a second, so that Ctrl-C is handled."""
    left = set(futures)
    while left:
        done, left = wait(left, timeout=0.5, return_when=FIRST_COMPLETED)
        yield from done


def check_existing(runs: Iterable[FineTuningRun]) -> None:
    """Check that the records or checkpoints of an earlier call, where there are any, are of these runs.

    Raises:
        SqueezeError: one was made with other options, or from other weights or data.
    """
    for run in runs:
        if run.record.is_file():
            _recorded(run)
        elif run.directory.is_dir():
            _checked_manifest(run)


def _may_remove(run: FineTuningRun, keep: KeepCheckpoints) -> bool:
    """Return whether the checkpoint of a run may be removed: not where an earlier call was to keep more of them."""
    if not (run.record.is_file() and run.directory.is_dir()):
        return True
    recorded = read_json(run.record).get("keep", "none")
    if recorded in _FEWER_TO_MORE and _FEWER_TO_MORE.index(recorded) > _FEWER_TO_MORE.index(keep):
        note(f"{run.directory} stays: it was made with --keep {recorded}")
        return False
    return True


def _result_of(run: FineTuningRun, processes: RunProcesses, keep: KeepCheckpoints) -> RunResult | None:
    """Return the recorded result of a run, or do the run; None where another run failed before this one started."""
    if processes.stopping.is_set():
        return None
    result = _recorded(run)
    if result is None:
        slot = processes.slots.get()
        try:
            result = _train_and_test(run, processes, slot, keep)
        except BaseException:
            processes.stopping.set()  # before another run starts
            raise
        finally:
            processes.slots.put(slot)
        _note_scores(run, result)
    return result


def _remove_checkpoints(runs: Sequence[FineTuningRun], results: Mapping[int, RunResult], keep: KeepCheckpoints) -> None:
    """Remove the checkpoints that are not to be kept, of the runs that have ended so far."""
    for number in results.keys() - _numbers_to_keep(runs, results, keep):
        if runs[number].directory.exists():
            shutil.rmtree(runs[number].directory)


def _numbers_to_keep(
    runs: Sequence[FineTuningRun], results: Mapping[int, RunResult], keep: KeepCheckpoints
) -> set[int]:
    """Return the numbers of the runs whose checkpoints are to be kept, of those that have results."""
    if keep != "best":
        return set(results) if keep == "all" else set()
    return set(best_of_groups(runs, results))


def best_of_groups(runs: Sequence[FineTuningRun], results: Mapping[int, RunResult]) -> list[int]:
    """Return the number of the run of each group that is best on dev, of equal ones the first; see `execute`.

    Args:
        runs: of all groups.
        results: by the number of the run, as far as there are any.
    """
    best: dict[str, int] = {}
    for number in sorted(results):
        group = runs[number].group
        if group not in best or results[number].dev_score > results[best[group]].dev_score:
            best[group] = number
    return list(best.values())


def _warn_of_removed(runs: Sequence[FineTuningRun], results: Mapping[int, RunResult], keep: KeepCheckpoints) -> None:
    """Warn of checkpoints that are to be kept, and that an earlier call has removed."""
    kept = [runs[number] for number in sorted(_numbers_to_keep(runs, results, keep))]
    keep_by_record = {
        run.record: read_json(run.record).get("keep", "none") for run in kept if not run.directory.is_dir()
    }
    # What --keep all had kept was not removed by a command.
    gone = {record: recorded for record, recorded in keep_by_record.items() if recorded != "all"}
    if gone:
        count = f"{len(gone)} checkpoints" if len(gone) > 1 else "1 checkpoint"
        earlier = " and ".join(sorted(set(gone.values())))
        warn(
            f"--keep {keep} finds {count} removed, because of the earlier --keep {earlier}; to train again, repeat the "
            f"command with another --out, or after deleting the records of those runs, such as {next(iter(gone))}"
        )


def _note_scores(run: FineTuningRun, result: RunResult) -> None:
    # The score of a label is missing where no test example has the label.
    score = result.test["metrics"].get(result.metric) if result.test else None
    test = "" if score is None else f", test {score:.4f}"
    note(f"{run.name}: {result.metric} on dev {result.dev_score:.4f}{test}, {result.seconds / 60:.1f} min")


def _recorded(run: FineTuningRun) -> RunResult | None:
    """Return the result in the run's record, or None where it has none or its test scores are missing."""
    if not run.record.is_file():
        return None
    record = read_json(run.record)
    _check_options(run, record["options"], dict.fromkeys(record["options"], "flag"), run.record)
    _check_inputs(run, record.get("inputs", {}), run.record)
    if run.test and not record["test"]:
        return None
    return RunResult(record["options"], record["dev"], record["test"])


def _train_and_test(run: FineTuningRun, processes: RunProcesses, slot: Slot, keep: KeepCheckpoints) -> RunResult:
    if run.directory.is_dir():
        clean(run.directory)
    else:
        flags = option_flags(run.options, option_defaults("finetune"))
        arguments = [*flags, "--out", str(run.directory), "--resume", "auto"]
        split = {} if run.split_seed is None else {SPLIT_SEED: str(run.split_seed)}
        variables = {**slot, **split, **_switched_off(run)}
        processes.call(run.name, ["finetune", run.checkpoint, *arguments], variables, run.log)
    written = _checked_manifest(run)
    test = None
    if run.test:
        arguments = ["evaluate", str(run.directory), "--json", "--device", run.device]
        test = json.loads(processes.call(run.name, arguments, slot, run.log))
    metric = (written.task and written.task.metric) or "f1"
    result = RunResult(dict(run.options), {**written.metrics, "metric": metric}, test)
    facts = {"checkpoint": run.checkpoint, "inputs": dict(run.inputs), "keep": keep}
    write_json(run.record, {**facts, **vars(result)})
    return result


def _switched_off(run: FineTuningRun) -> dict[str, str]:
    """Return the variables of options that are false and have no --no-NAME: a benchmark may have set them."""
    defaults = option_defaults("finetune")
    off = (name for name, value in run.options.items() if value is False and defaults.get(name) is False)
    return {f"BIOSQUEEZE_FINETUNE_{name.upper()}": "false" for name in off}


def _checked_manifest(run: FineTuningRun) -> Manifest:
    """Return the manifest of a run's checkpoint.

    Raises:
        SqueezeError: it is of another run, or of no run.
    """
    written = read_manifest(run.directory)
    if written is None:
        raise SqueezeError(f"{run.directory} is no checkpoint of biosqueeze; remove it, or name another --out")
    entry = written.history[-1]
    _check_options(run, entry.options, entry.sources, run.directory)
    _check_inputs(run, {**entry.inputs, "checkpoint": entry.parents["parent"].sha256}, run.directory)
    return written


def _check_options(run: FineTuningRun, options: Mapping[str, Any], sources: Mapping[str, str], where: Path) -> None:
    """Check that the existing record or checkpoint was made with the options of this run."""
    given = {name for name, source in sources.items() if source != "default"}
    names = (given | set(run.options)) - INCIDENTAL - {"checkpoint"}  # whose weights are compared
    changed = [name for name in sorted(names) if not _equal(options.get(name), run.options.get(name))]
    if changed:
        raise SqueezeError(
            f"{where} was made with other values of {', '.join(changed)}; give another --out, or remove it"
        )


def _check_inputs(run: FineTuningRun, recorded: Mapping[str, str], where: Path) -> None:
    """Check that the existing record or checkpoint was made from the same weights and data, whatever their names."""
    changed = [name for name, value in run.inputs.items() if recorded.get(name, value) != value]
    if changed:
        raise SqueezeError(
            f"{where} was made when the {' and the '.join(changed)} of {run.name} had other content; give another "
            "--out, or remove it"
        )


def _equal(first: Any, second: Any) -> bool:
    """Compare values, a tuple equal to a list of the same items."""
    return (list(first) if isinstance(first, tuple) else first) == (
        list(second) if isinstance(second, tuple) else second
    )
