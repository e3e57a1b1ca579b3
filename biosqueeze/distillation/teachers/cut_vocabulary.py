"""Teachers of a student whose vocabulary is a part of theirs, as `shrink --vocab-keep` writes it.

Such a teacher gets the student's vocabulary too: both then read the same tokens, and every loss can compare them. A
text of kept tokens has the same outputs as before; probabilities of tokens are those among the kept ones.
"""

import json
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from biosqueeze.checkpoint import Checkpoint
from biosqueeze.models.cuts.vocabulary import cut_config, with_rows
from biosqueeze.progress import note

# What a cut changes in a tokenizer.json: the rest decides how texts are normalized and divided into words.
_CHANGED_BY_A_CUT = ("model", "added_tokens", "post_processor")
# Special tokens that a cut keeps: MPNet's vocabulary contains BERT's, and frames and pads texts with other tokens.
_KEPT_BY_A_CUT = ("cls_token", "sep_token", "pad_token", "mask_token")


def tokens_in_teacher(student: PreTrainedTokenizerBase, teacher: PreTrainedTokenizerBase) -> tuple[int, ...] | None:
    """Return the teacher's id of each token of the student, by the student's ids.

    Returns:
        None if the student's vocabulary is the teacher's, or no part of it, or texts are normalized or divided
        differently.
    """
    ids, teacher_ids = student.get_vocab(), teacher.get_vocab()
    if len(ids) >= len(teacher_ids) or not ids.keys() <= teacher_ids.keys() or sorted(ids.values())[-1] >= len(ids):
        return None
    if _rules(student) != _rules(teacher):
        return None
    return tuple(teacher_ids[token] for token in sorted(ids, key=ids.__getitem__))


def _rules(tokenizer: Any) -> dict[str, Any]:
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    rules = {key: value for key, value in content.items() if key not in _CHANGED_BY_A_CUT}
    special = {role: getattr(tokenizer, role) for role in _KEPT_BY_A_CUT}
    return rules | special | {"kind": content["model"].get("type")}


def cut_teacher(
    teacher: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, student: PreTrainedTokenizerBase, name: str
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return a teacher and its tokenizer with the student's vocabulary, if that is a part of theirs; else unchanged."""
    kept = tokens_in_teacher(student, tokenizer)
    if kept is None:
        return teacher, tokenizer
    note(f"{name} runs with the student's vocabulary, {len(kept):,} of its {len(tokenizer.get_vocab()):,} tokens")
    cut, _ = with_rows(teacher, cut_config(teacher.config, kept), [[number] for number in kept])
    return cut, student


def vocabulary_mark(teacher: PreTrainedModel, checkpoint: Checkpoint) -> str:
    """Return what is added to a checkpoint's hash for a teacher whose vocabulary was cut; "" for any other."""
    tokens = teacher.config.vocab_size
    return "" if tokens == checkpoint.config.get("vocab_size", tokens) else f":{tokens}"
