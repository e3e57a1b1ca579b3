"""Checkpoints with other names of their labels, or without some of their outputs."""

from collections.abc import Sequence
from pathlib import Path

from biosqueeze.checkpoint import Checkpoint
from biosqueeze.data.output_types import MULTI
from biosqueeze.files import read_json, write_json
from biosqueeze.models.loading.load import OUTPUT_LAYER, label_changes, load_model, load_tokenizer, new_model
from biosqueeze.sentence_layout import copy_sentence_layout


def remove_outputs(source: Checkpoint, directory: Path, kept: Sequence[int]) -> None:
    """Write a classifier or tagger with some of its outputs, whose weights are unchanged, to a directory.

    Args:
        source: with a classifier of stock transformers.
        directory: for the model and its tokenizer.
        kept: the outputs that remain, from 0; they have no names yet.
    """
    model = load_model(source).model
    rows = {name: t[list(kept)] if name in OUTPUT_LAYER else t for name, t in model.state_dict().items()}
    config = model.config
    for key, value in label_changes([f"LABEL_{number}" for number in kept]).items():
        setattr(config, key, value)
    smaller = new_model(config, type(model).__name__, seed=None)
    smaller.load_state_dict(rows)
    smaller.save_pretrained(directory)
    load_tokenizer(source).save_pretrained(directory)
    copy_sentence_layout(source.path, directory)


def write_labels(directory: Path, labels: Sequence[str], *, is_multi_label: bool) -> None:
    """Write the names of the labels to config.json, and whether a text has any number of them."""
    path = directory / "config.json"
    more = {"problem_type": MULTI.problem_type} if is_multi_label else {}
    write_json(path, read_json(path) | label_changes(labels) | more)
