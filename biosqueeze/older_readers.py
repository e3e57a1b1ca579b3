"""Have transformers 4 read the files that transformers 5 saves. Torch-free."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from biosqueeze.files import read_json, write_text

# The name that both know of a tokenizer that is used as tokenizer.json has it.
_CLASSES = {"TokenizersBackend": "PreTrainedTokenizerFast"}
# The tokenizers library since 0.15 does not write it; before, it does not read the file without.
_PREFIX_SPACE = "add_prefix_space"
# That of XLM-RoBERTa, of 250,002 pieces, has 17 MB as transformers indents it.
_LARGEST_FILE = 1 << 27


def rewrite_for_older_readers(directory: Path) -> None:
    """Change what transformers 4 does not know in tokenizer_config.json and tokenizer.json; both mean what they meant.

    Args:
        directory: a checkpoint that is being written.
    """
    for name, change in (("tokenizer_config.json", _change_settings), ("tokenizer.json", _change_tokenizer)):
        path = directory / name
        if path.is_file():
            content = read_json(path, _LARGEST_FILE)
            if change(content):  # pieces stay readable, as the tokenizers library writes them
                write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def _change_settings(config: dict[str, Any]) -> bool:
    changes = [_rename_class(config), _rename_special_tokens(config)]
    return any(changes)


def _rename_class(config: dict[str, Any]) -> bool:
    known = _CLASSES.get(str(config.get("tokenizer_class")))
    if known:
        config["tokenizer_class"] = known
    return known is not None


def _rename_special_tokens(config: dict[str, Any]) -> bool:
    """Give the list of further special tokens the name that all read: late releases of 4 want a dict under the new."""
    tokens = config.get("extra_special_tokens")
    if not isinstance(tokens, list) or "additional_special_tokens" in config:
        return False
    config["additional_special_tokens"] = config.pop("extra_special_tokens")
    return True


def _change_tokenizer(tokenizer: dict[str, Any]) -> bool:
    changes = [_join_merges(tokenizer.get("model")), *map(_add_prefix_space, _metaspaces(tokenizer))]
    return any(changes)


def _join_merges(model: Any) -> bool:
    """Write merges of byte pairs as `a b` in place of `["a", "b"]`, as the tokenizers library did up to 0.19."""
    merges = model.get("merges") if isinstance(model, dict) else None
    if not isinstance(merges, list) or not merges or not all(isinstance(merge, list) for merge in merges):
        return False
    if any(" " in part for merge in merges for part in merge):
        return False
    model["merges"] = [" ".join(merge) for merge in merges]
    return True


def _metaspaces(tokenizer: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the parts of kind Metaspace (SentencePiece): pre-tokenizer and decoder, alone or in a sequence."""
    for role, parts in (("pre_tokenizer", "pretokenizers"), ("decoder", "decoders")):
        outer = tokenizer.get(role)
        if isinstance(outer, dict):
            inner = outer.get(parts) or []
            yield from (part for part in [outer, *inner] if part.get("type") == "Metaspace")


def _add_prefix_space(metaspace: dict[str, Any]) -> bool:
    if _PREFIX_SPACE in metaspace:
        return False
    metaspace[_PREFIX_SPACE] = metaspace.get("prepend_scheme") != "never"
    return True
