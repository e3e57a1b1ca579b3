"""Tokens that were added to a finished vocabulary, such as markers of entities.

tokenizer.json has them. In the layouts before it tokenizer_config.json lists them with their rules
(`added_tokens_decoder`); older checkpoints have their ids alone, in added_tokens.json, and name those that are special
in special_tokens_map.json. Without them a text would be split into other pieces than those that the model was trained
on; and if they were not special, a masked language model would have to predict them.
"""

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizers import AddedToken

from biosqueeze.errors import SqueezeError
from biosqueeze.files import read_json
from biosqueeze.files.json_object import JsonObject, is_unicode

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

_CONFIG, _IDS, _SPECIAL = "tokenizer_config.json", "added_tokens.json", "special_tokens_map.json"
_DECODER = "added_tokens_decoder"
_RULES = ("lstrip", "rstrip", "single_word", "normalized", "special")
_LISTS = ("additional_special_tokens", "extra_special_tokens")
_ADVICE = "correct that value, or fetch the file again"


def add_tokens(tokenizer: "PreTrainedTokenizerFast", path: Path) -> "PreTrainedTokenizerFast":
    """Add the tokens that a checkpoint's files list to its tokenizer, in place.

    Args:
        tokenizer: built from the vocabulary alone.
        path: of the checkpoint.

    Raises:
        SqueezeError: a file is damaged, or gives a token an id that does not follow from the vocabulary.
    """
    core = tokenizer.backend_tokenizer
    listed = sorted(_listed(path, tokenizer), key=lambda each: each[0])
    # Many at a time: each call takes a time that grows with the number of all added tokens.
    for special, tokens in groupby((token for _, token in listed), key=lambda token: token.special):
        add = core.add_special_tokens if special else core.add_tokens
        add(list(tokens))
    for number, token in listed:
        if core.token_to_id(token.content) != number:
            raise SqueezeError(
                f"{path}: the token {token.content!r} that was added to the vocabulary has the id {number:,} in its "
                f"files, but {core.token_to_id(token.content):,} follows from the vocabulary; save the tokenizer with "
                "transformers (save_pretrained) and copy tokenizer.json there"
            )
    return tokenizer


def add_listed(core: "Tokenizer", path: Path) -> None:
    """Add the pieces of the vocabulary that a checkpoint's files name as special to its tokenizer, in place.

    Args:
        core: of a tokenizer.json, which may lack what was named later, such as [unused1] as a marker.
        path: of the checkpoint.

    Raises:
        SqueezeError: a file is damaged.
    """
    known = {token.content for token in core.get_added_tokens_decoder().values()}
    named = [token for token in _special_of(path) if token not in known and core.token_to_id(token) is not None]
    core.add_special_tokens([AddedToken(token, special=True) for token in named])


def name_special(tokenizer: "PreTrainedTokenizerFast") -> "PreTrainedTokenizerFast":
    """Name the added special tokens without a role, so that they are saved as such and never masked; return it."""
    roles = set(tokenizer.special_tokens_map.values())
    added = tokenizer.backend_tokenizer.get_added_tokens_decoder().values()
    further = [token.content for token in added if token.special and token.content not in roles]
    if further:
        tokenizer.extra_special_tokens = further
    return tokenizer


def _listed(path: Path, tokenizer: "PreTrainedTokenizerFast") -> Iterator[tuple[int, AddedToken]]:
    """Yield ids and tokens: with their rules, where they are listed, else those that are not added already."""
    config = _read(path / _CONFIG)
    if config.optional(_DECODER, dict):
        for key, values in config.children_by_name(_DECODER).items():
            rules = {rule: values.get(rule, bool) for rule in _RULES if rule in values.values}
            yield _number(values, key), AddedToken(_text(values, "content", values.get("content", str)), **rules)
        return
    known = {token.content for token in tokenizer.backend_tokenizer.get_added_tokens_decoder().values()}
    vocabulary, ids = tokenizer.get_vocab(), _read(path / _IDS)
    special = set(_special_of(path))
    in_vocabulary = {token: vocabulary[token] for token in special if token in vocabulary}
    for token, number in {**in_vocabulary, **{token: ids.get(token, int) for token in ids.values}}.items():
        if _text(ids, token, token) not in known:
            is_special = token in special
            yield number, AddedToken(token, normalized=not is_special, special=is_special)


def _read(file: Path) -> JsonObject:
    return JsonObject(read_json(file) if file.is_file() else {}, str(file), _ADVICE)


def _special_of(path: Path) -> dict[str, None]:
    """Return the special tokens without a role that the files of a checkpoint name."""
    return dict.fromkeys(token for name in (_CONFIG, _SPECIAL) for token in _special(_read(path / name)))


def _special(settings: JsonObject) -> Iterator[str]:
    """Yield the special tokens beside those with a role, each a text or an object."""
    for name in _LISTS:
        listed: Any = settings.values.get(name)
        for token in listed if isinstance(listed, list) else ():
            content = token.get("content") if isinstance(token, dict) else token
            if not isinstance(content, str):
                raise settings.error(name, "has a value that is not a token")
            yield content


def _number(values: JsonObject, key: str) -> int:
    if not (key.isascii() and key.isdigit() and len(key) < 9):
        raise values.error("", f"has the key {key[:40]!r}, the id of a token was expected")
    return int(key)


def _text(values: JsonObject, key: str, token: str) -> str:
    if not token or not is_unicode(token):
        raise values.error(key, "is empty, or is not valid text")
    return token
