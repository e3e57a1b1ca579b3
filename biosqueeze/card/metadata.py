"""The front matter of a card, which the Hub reads: task, base model, licence, tags and scores."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biosqueeze.card.markdown import results_block
from biosqueeze.hub_names import split_revision
from biosqueeze.manifest import Manifest

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

PIPELINE_TAGS = {
    "token-classification": "token-classification",
    "sequence-classification": "text-classification",
    "question-answering": "question-answering",
    "mlm": "fill-mask",
    "base": "feature-extraction",
}
# The Hub's task types of the kinds of task that do not classify whole texts.
_TASK_TYPES = {"ner": "token-classification", "pico": "token-classification", "qa": "question-answering"}
SCORES = (
    *("precision", "recall", "f1", "micro_f1", "macro_f1", "blue_f1", "example_f1", "accuracy"),
    *("exact", "strict_accuracy", "lenient_accuracy", "mrr", "pearson", "spearman"),
)
_HUB_ID = re.compile(r"[\w-][\w.-]*(/[\w.-]+)?")  # the oldest models have no owner
_INHERITED = {
    "base_model": _HUB_ID,
    "license": re.compile(r"[\w.+-]{1,60}"),
    "license_name": re.compile(r"[\w.+ -]{1,100}"),
    "license_link": re.compile(r"https?://[^\s\"'<>]{1,300}|LICENSE(\.\w+)?"),
}
_FRONT_MATTER_BYTES = 1 << 16


def front_matter(name: str, manifest: Manifest, parent: Path | None, results: Sequence[Mapping[str, Any]]) -> str:
    """Return the YAML of a new card.

    Args:
        name: of the checkpoint.
        manifest: its manifest.
        parent: the parent's directory, from whose card licence and base model are taken over.
        results: of `evaluate`.
    """
    from huggingface_hub import ModelCardData

    inherited = read_inherited(parent / "README.md") if parent else {}
    if manifest.parent and is_on_hub(manifest.parent.name, parent):
        inherited["base_model"] = split_revision(manifest.parent.name)[0]
    data = ModelCardData(
        library_name="transformers",
        pipeline_tag=PIPELINE_TAGS.get(manifest.head, "feature-extraction"),
        tags=["biosqueeze", manifest.stage, *([manifest.task.name] if manifest.task else [])],
        **inherited,
    )
    return f"{data.to_yaml()}\n{model_index(name, manifest, results)}"


def is_on_hub(name: str, directory: Path | None = None) -> bool:
    """Return whether a parent's name is a Hub id and not a local directory.

    Args:
        name: as it was given.
        directory: the parent's; that of a model of the Hub, in the cache, has the name of a commit.
    """
    is_local = Path(name).exists() or (directory is not None and directory.name == Path(name).name)
    return _HUB_ID.fullmatch(split_revision(name)[0]) is not None and not is_local


def read_inherited(card: Path) -> dict[str, Any]:
    """Return licence and base model from the front matter of a card; what is missing or damaged is left out."""
    import yaml

    try:
        with card.open("rb") as file:
            text = file.read(_FRONT_MATTER_BYTES).decode(errors="replace")
        match = re.match(r"\s*---\r?\n(.*?)\r?\n---\r?(\n|$)", text, re.DOTALL)
        values = yaml.safe_load(match[1]) if match else None
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return {}
    known = values if isinstance(values, dict) else {}
    return {
        key: known[key]
        for key, form in _INHERITED.items()
        if isinstance(known.get(key), str) and form.fullmatch(known[key])
    }


def model_index(name: str, manifest: Manifest, results: Sequence[Mapping[str, Any]]) -> str:
    """Return the block with the scores of the stage and of `evaluate`; without a score it is empty."""
    import yaml
    from huggingface_hub.repocard_data import eval_results_to_model_index

    model = " ".join(name.split())
    measured = [scores for scores in (_stage_scores(manifest), *map(_scores, results)) if scores]
    if not measured:
        return results_block("")
    # One call for each: scores of one task and split in one call are merged, whatever their data and backend are.
    entries = [eval_results_to_model_index(model, scores)[0]["results"][0] for scores in measured]
    index = {"model-index": [{"name": model, "results": entries}]}
    return results_block(yaml.dump(index, sort_keys=False, allow_unicode=True).strip())


def _stage_scores(manifest: Manifest) -> "list[EvalResult]":
    """Return the scores of the stage on the data of the task; empty where the stage did not measure any."""
    task, metrics = manifest.task, manifest.metrics
    if task is None:
        return []
    counted = {name: task.formulation.get(name) for name in ("types", "merge_types")}
    measured = {"task": task.name, "data": task.data, "split": metrics.get("split", "dev"), "metric": task.metric}
    return _scores({**measured, **counted, "metrics": metrics})


def _scores(result: Mapping[str, Any]) -> "list[EvalResult]":
    from huggingface_hub import EvalResult

    task = str(result.get("task"))
    backend = result.get("backend")
    return [
        EvalResult(
            task_type=_TASK_TYPES.get(task, "text-classification"),
            dataset_type=task,
            dataset_name=data_shown(result) if result.get("data") else "unknown",
            dataset_split=str(result.get("split")),
            dataset_args={"backend": str(backend)} if backend else None,
            metric_type=score,
            metric_value=round(value, 4),
        )
        for score, value in main_scores(result).items()
    ]


def restriction_of(result: Mapping[str, Any]) -> str:
    """Return what of the labels a result of `evaluate` counts, such as "types Disease"; "" for all as they are."""
    types, negative = result.get("types"), result.get("negative")
    parts = (
        f"types {', '.join(map(str, types))}" if types and isinstance(types, list) else "",
        "types as one" if result.get("merge_types") else "",
        f"negative {negative}" if negative else "",
    )
    return "; ".join(filter(None, parts))


def data_shown(result: Mapping[str, Any]) -> str:
    """Return the name of the data of a result, with the restriction to some labels."""
    restriction = restriction_of(result)
    return f"{result.get('data')} ({restriction})" if restriction else str(result.get("data"))


def main_scores(result: Mapping[str, Any]) -> dict[str, float]:
    """Return the scores of a result that a card shows: not those of each class, but for one that it is compared by."""
    metrics = result.get("metrics")
    values = metrics if isinstance(metrics, Mapping) else {}
    names = dict.fromkeys([*SCORES, str(result.get("metric"))])
    return {name: float(values[name]) for name in names if isinstance(values.get(name), float)}
