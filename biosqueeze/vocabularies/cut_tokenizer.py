"""Write a tokenizer with some of its tokens: model, added tokens and post-processor get the new ids."""

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from biosqueeze.errors import SqueezeError
from biosqueeze.models.tokenizers.added_tokens import name_special
from biosqueeze.vocabularies.kept_tokens import TokenizerContent, merges_of


def cut_tokenizer(tokenizer: Any, content: TokenizerContent, kept: Sequence[int]) -> PreTrainedTokenizerFast:
    """Return a tokenizer with some of the tokens, numbered from 0 in the same order.

    Args:
        tokenizer: a fast tokenizer of transformers.
        content: of that tokenizer.
        kept: ids in ascending order.

    Raises:
        SqueezeError: the tokenizers library does not number the tokens so.
    """
    number = {old: new for new, old in enumerate(kept)}
    ids = {token: number[old] for token, old in content.ids.items() if old in number}
    changed = copy.deepcopy(dict(content.json))
    changed["model"] = _cut_model(content, ids)
    changed["added_tokens"] = [token | {"id": ids[token["content"]]} for token in changed["added_tokens"]]
    changed["post_processor"] = _renumbered(changed.get("post_processor"), ids)
    core = Tokenizer.from_str(json.dumps(changed))
    if core.get_vocab() != ids:
        raise SqueezeError(
            "the tokenizer cannot be cut: its added tokens have ids between those of its pieces; save it with "
            "transformers (save_pretrained) and try again, or leave out --vocab-keep"
        )
    build: Any = PreTrainedTokenizerFast
    cut: PreTrainedTokenizerFast = build(
        tokenizer_object=core,
        model_max_length=tokenizer.model_max_length,
        model_input_names=tokenizer.model_input_names,
        **tokenizer.special_tokens_map,
    )
    return name_special(cut)


def _cut_model(content: TokenizerContent, ids: Mapping[str, int]) -> dict[str, Any]:
    model = dict(content.json["model"])
    if content.kind == "Unigram":
        pieces = [scored for scored in model["vocab"] if scored[0] in ids]
        unknown = model["unk_id"]
        names = [piece for piece, _ in pieces]
        return model | {
            "vocab": pieces,
            "unk_id": None if unknown is None else names.index(model["vocab"][unknown][0]),
        }
    model["vocab"] = {piece: ids[piece] for piece in model["vocab"] if piece in ids}
    if content.kind == "BPE":
        model["merges"] = [list(pair) for pair in merges_of(model) if {*pair, "".join(pair)} <= model["vocab"].keys()]
    return model


def _renumbered(processor: dict[str, Any] | None, ids: Mapping[str, int]) -> dict[str, Any] | None:
    """Return a post-processor with the new ids of its special tokens."""
    if processor is None:
        return None
    changed = dict(processor)
    if "processors" in changed:
        changed["processors"] = [_renumbered(inner, ids) for inner in changed["processors"]]
    if "special_tokens" in changed:
        changed["special_tokens"] = {
            name: token | {"ids": [ids[part] for part in token["tokens"]]}
            for name, token in changed["special_tokens"].items()
        }
    return changed | {role: [changed[role][0], ids[changed[role][0]]] for role in ("sep", "cls") if role in changed}
