"""Scores of tagged sentences: by whole entities (seqeval), and word by word (scikit-learn)."""

from collections.abc import Iterator, Sequence

from biosqueeze.tasks.encoding.tag_schemes import OUTSIDE, split_tag

Tags = Sequence[Sequence[str]]  # for each sentence, the tag of every word
UNTYPED = "_"  # the type of tags without one


def score_entities(gold: Tags, predicted: Tags) -> dict[str, float]:
    """Compute precision, recall and F1 over whole entities, for all and by type (seqeval's default mode).

    Args:
        gold: for each sentence, the tag of every word.
        predicted: as gold.

    Returns:
        precision, recall, f1 (micro averages), support (gold entities), and for each type of entity f1-TYPE
        and support-TYPE.
    """
    from seqeval.metrics import classification_report

    if not _has_entity([*gold, *predicted]):
        return {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 0}
    lists = [list(tags) for tags in gold], [list(tags) for tags in predicted]
    report = classification_report(*lists, output_dict=True, zero_division=0)
    overall = report.pop("micro avg")
    types = {name: row for name, row in report.items() if not name.endswith(" avg")}
    return {
        "precision": float(overall["precision"]),
        "recall": float(overall["recall"]),
        "f1": float(overall["f1-score"]),
        "support": int(overall["support"]),
        **{f"f1-{name}": float(row["f1-score"]) for name, row in types.items()},
        **{f"support-{name}": int(row["support"]) for name, row in types.items()},
    }


def finds_nothing(gold: Tags, predicted: Tags) -> bool:
    """Return whether the prediction has no entity at all, where there are gold entities."""
    return _has_entity(gold) and not _has_entity(predicted)


def _has_entity(sentences: Tags) -> bool:
    return any(tag != OUTSIDE for tags in sentences for tag in tags)


def score_words_by_type(gold: Tags, predicted: Tags) -> dict[str, float]:
    """Compute F1 over words for each type; B and I of a type are equal.

    Args:
        gold: for each sentence, the tag of every word, in any scheme.
        predicted: as gold.

    Returns:
        macro_f1 (mean over the types that occur in either; 0 without any), support (gold words with a type), and for
        each type precision-TYPE, recall-TYPE, f1-TYPE and support-TYPE; an undefined score is 0.
    """
    from sklearn.metrics import precision_recall_fscore_support

    gold_types, predicted_types = list(_types(gold)), list(_types(predicted))
    ids = {name: number for number, name in enumerate(sorted({*gold_types, *predicted_types} - {OUTSIDE}))}
    if not ids:
        return {"macro_f1": 0.0, "support": 0}
    sides = ([ids.get(name, len(ids)) for name in side] for side in (gold_types, predicted_types))
    precision, recall, f1, support = precision_recall_fscore_support(
        *sides, labels=range(len(ids)), average=None, zero_division=0
    )
    scores: dict[str, float] = {"macro_f1": float(f1.mean()), "support": int(support.sum())}
    for number, name in enumerate(ids):
        scores |= {
            f"precision-{name}": float(precision[number]),
            f"recall-{name}": float(recall[number]),
            f"f1-{name}": float(f1[number]),
            f"support-{name}": int(support[number]),
        }
    return scores


def _types(sentences: Tags) -> Iterator[str]:
    """Yield the type of every word, O for none."""
    return (OUTSIDE if tag == OUTSIDE else split_tag(tag)[1] or UNTYPED for tags in sentences for tag in tags)
