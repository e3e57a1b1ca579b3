"""What is said at the end of a stage: the step that was kept, the score beside the teacher's, size, what comes next."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from biosqueeze.card.metadata import restriction_of
from biosqueeze.checkpoint import Checkpoint
from biosqueeze.errors import SqueezeError
from biosqueeze.manifest import TaskRecord, read_manifest
from biosqueeze.options import Summary

_DATA = "DIRECTORY"  # in a command: data that the user has to name


def trained_summary(
    written: Checkpoint, metrics: Mapping[str, Any], metric: str, teacher: float | None = None
) -> Summary:
    """Return the summary of a training.

    Args:
        written: the checkpoint.
        metrics: of the training, as in the manifest.
        metric: the score that selected the step.
        teacher: the teacher's score on the same dev split, if it is known.
    """
    return Summary(
        result=_kept(metrics, metric, teacher),
        machine=f"{metrics['compute']} on {metrics['device']}" if "compute" in metrics else "",
        size=size_of(written),
        next_words=next_after_training(written),
    )


def pretrained_summary(written: Checkpoint, metrics: Mapping[str, Any]) -> Summary:
    """Return the summary of a pretraining: the scores on held-out text, or the last loss.

    Args:
        written: the checkpoint.
        metrics: of the training, as in the manifest.
    """
    scores = metrics.get("held_out") or metrics["last_losses"]
    kind = "held-out" if metrics.get("held_out") else "last batch"
    listed = ", ".join(f"{name} {value:.4f}" for name, value in scores.items())
    return Summary(
        result=f"kept the weights of the last step, {metrics['steps']:,}; {kind} {listed}",
        machine=f"{metrics['compute']} on {metrics['device']}",
        size=size_of(written),
        next_words=next_after_training(written),
    )


def _kept(metrics: Mapping[str, Any], metric: str, teacher: float | None) -> str:
    step, score = metrics.get("best_step"), metrics.get(metric)
    if step is None or not isinstance(score, float):
        return f"kept the weights of the last step, {metrics['steps']:,}" if metrics.get("steps") else ""
    start = metrics.get("start_score")
    before = f"; {start:.4f} before training" if start is not None and step else ""
    scores = f"{scored(metric, score, teacher)}{before}"
    if metrics.get("mean_with_start"):
        return f"kept the mean of the weights before the training and the last ones; on dev {scores}"
    kept = f"kept step {step:,} of {metrics['steps']:,}" if step else "kept the weights before the training"
    return f"{kept}, the best on dev: {scores}"


def scored(metric: str, score: float, teacher: float | None) -> str:
    """Return a score beside the teacher's: "f1 0.7427, 95.4% of the teacher's 0.7785"."""
    share = share_of(score, teacher)
    beside = f", {share:.1%} of the teacher's {teacher:.4f}" if share is not None else ""
    return f"{metric} {score:.4f}{beside}"


def share_of(score: float | None, reference: float | None) -> float | None:
    """Return a score divided by that of another model; None where it is negative, or the other not positive."""
    return None if score is None or reference is None or score < 0 or reference <= 0 else score / reference


def measured_on(result: Mapping[str, Any]) -> tuple[str, ...]:
    """Return task, data, split and restriction of a result of `evaluate`: results with equal ones are comparable.

    Data are named by the absolute path that `evaluate` recorded. Results of earlier releases lack it; a name of theirs
    that exists here is taken for that directory.
    """
    task, data, split = (str(result.get(key, "")) for key in ("task", "data", "split"))
    place = Path(data).expanduser()
    path = str(place.resolve()) if data and place.exists() else data
    return task, str(result.get("data_path") or path), split, restriction_of(result)


def main_score(result: Mapping[str, Any]) -> tuple[str, float | None]:
    """Return the name and the value of the score that an evaluation is compared by; None where it has no such score.

    Args:
        result: of `evaluate`. Those of earlier releases do not name the score: it is F1.
    """
    metric = str(result.get("metric", "f1"))
    score = (result.get("metrics") or {}).get(metric)
    return metric, None if score is None else float(score)


def score_name(metric: str) -> str:
    """Return the name of a score as it is printed."""
    return {"f1": "F1", "micro_f1": "micro F1", "macro_f1": "macro F1"}.get(metric, metric)


def score_heading(metrics: Iterable[str]) -> str:
    """Return the heading of a column of scores: their name where all have the same, else "score"."""
    names = set(metrics)
    return score_name(names.pop()) if len(names) == 1 else "score"


def size_of(checkpoint: Checkpoint, deployed: float | None = None) -> str:
    """Return parameters and megabytes of a checkpoint that biosqueeze wrote.

    Args:
        checkpoint: with a manifest; else the result is "".
        deployed: megabytes of a graph and what it needs, where those count and not the float weights.
    """
    if checkpoint.manifest is None:
        return ""
    model = checkpoint.manifest.model
    size = f"{model.megabytes:.1f} MB" if deployed is None else f"{deployed} MB deployed"
    return f"{model.parameters['total']:,} parameters, {size}"


def next_after_training(written: Checkpoint) -> tuple[str, ...]:
    """Return the command that follows: score a model of a task, fine-tune an encoder."""
    if written.task is None:
        return "finetune", str(written.path), "--data", _DATA
    return "evaluate", str(written.path), *(() if written.task.existing_data else ("--data", _DATA))


def next_after_cut(written: Checkpoint, source: Checkpoint) -> tuple[str, ...]:
    """Return the command that follows a cut: distil on the task of the source, or on plain text.

    The logits of a CRF are not its predictions, so it is fine-tuned.
    """
    if source.task is None:
        return "distill", str(written.path), "--teacher", _teacher_for(source), "--corpus", "TEXT.txt.gz"
    if written.custom_head == "crf":
        return _fine_tune_again(written, source, source.task)
    return "distill", str(written.path), "--teacher", _teacher_for(source), *_data_of(source, source.task)


def next_after_lost_tokens(written: Checkpoint, source: Checkpoint) -> tuple[str, ...]:
    """Return the command that follows a vocabulary with fewer tokens than the text has.

    Fine-tune: a teacher gets the vocabulary of its student, so it would lose as much.
    """
    return _fine_tune_again(written, source, source.task) if source.task else next_after_training(written)


def _fine_tune_again(written: Checkpoint, source: Checkpoint, task: TaskRecord) -> tuple[str, ...]:
    tagger = ("--tagger", "crf") if written.custom_head == "crf" else ()
    return "finetune", str(written.path), "--task", task.name, *tagger, *_data_of(source, task)


def _data_of(source: Checkpoint, task: TaskRecord) -> tuple[str, ...]:
    """Return the options for the data of the last training on the task."""
    return "--data", task.existing_data or _DATA, *_held_out(source)


def _teacher_for(source: Checkpoint) -> str:
    """Return the teacher for a cut of a checkpoint: itself; where it is a cut, not trained since, what it was cut from.

    A cut of the vocabulary alone needs no training, and is a teacher.
    """
    name, made = source.name, source.manifest
    while made and made.stage == "shrink" and made.parent:
        try:
            parent = read_manifest(Path(made.parent.name).expanduser())
        except SqueezeError:  # damaged
            break
        if parent is None or parent.model.sha256 != made.parent.sha256:
            break
        if replace(parent.model.shape, vocabulary=made.model.shape.vocabulary) == made.model.shape:
            break
        name, made = made.parent.name, parent
    return name


def _held_out(source: Checkpoint) -> tuple[str, ...]:
    """Return the options that hold out the same dev examples as the last training on the task."""
    trainings = (entry.options for entry in reversed(source.history) if entry.stage in ("finetune", "distill"))
    made = next(trainings, {})
    if not made.get("dev_share"):
        return ()
    return "--dev-share", f"{made['dev_share']:g}", *(("--seed", str(made["seed"])) if made.get("seed") else ())


def next_after_export(written: Checkpoint, source: Checkpoint) -> tuple[str, ...]:
    """Return the command that follows a graph: score it, or without a task measure it beside its source."""
    if written.task is not None and written.task.data:
        return next_after_training(written)
    return "bench", source.name, str(written.path)
