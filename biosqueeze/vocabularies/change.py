"""Change the vocabulary of a checkpoint: plan it from config and tokenizer, then apply it to the model."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

from biosqueeze.checkpoint import Checkpoint, locate
from biosqueeze.checkpoint_files import check_files
from biosqueeze.data.text.corpus import check_field, is_stream
from biosqueeze.errors import UsageError
from biosqueeze.models.cuts.vocabulary import cut_config, moved_config, named_ids, with_rows
from biosqueeze.models.families import family_of, longest_input, takes_token_types
from biosqueeze.models.loading.load import load_config, load_tokenizer
from biosqueeze.models.tokenizers.casing import sentencepiece_file
from biosqueeze.models.tokenizers.new_vocabulary import check_padding, vocabulary_size
from biosqueeze.models.tokenizers.tokenizer import build_tokenizer, tokenizer_family
from biosqueeze.models.tokenizers.tokenizer_settings import ROLES, check_tokenizer
from biosqueeze.options.rules import is_given
from biosqueeze.progress import collect_warnings, quietly, warn
from biosqueeze.tasks.sniffing import may_be_labelled
from biosqueeze.vocabularies.cut_tokenizer import cut_tokenizer
from biosqueeze.vocabularies.former_tokens import find_former_tokens
from biosqueeze.vocabularies.kept_tokens import KeptTokens, TokenizerContent, choose_tokens
from biosqueeze.vocabularies.options import VocabularyOptions
from biosqueeze.vocabularies.token_usage import CountedTexts

_BYTES = 4  # of a float32
_LEAST_COVERAGE = 0.99  # a tagger of diseases lost 2 of 76 points of F1 with 1.9% of the tokens


@dataclass(frozen=True)
class VocabularyChange:
    """A new vocabulary: its tokenizer, and the former tokens that each row is made of."""

    tokenizer: PreTrainedTokenizerFast
    sources: Sequence[Sequence[int]]
    steps: tuple[str, ...]
    """What is done, for the plan."""
    facts: Mapping[str, Any]
    is_cut: bool
    """Whether tokens are only left out."""

    def new_config(self, config: PreTrainedConfig) -> PreTrainedConfig:
        """Return the config of a model with the new vocabulary, from one with the former."""
        if self.is_cut:
            return cut_config(config, [source[0] for source in self.sources])
        special = {f"{role}_id": getattr(self.tokenizer, f"{role}_id") for role in ROLES}
        return moved_config(config, len(self.sources), special)

    def apply(self, model: PreTrainedModel, seed: int) -> tuple[PreTrainedModel, float]:
        """Return the model with the new vocabulary, and its difference from the former one; see `with_rows`."""
        return with_rows(model, self.new_config(model.config), self.sources, seed)

    def tokenizer_for(self, former: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
        """Return the tokenizer with the inputs and the longest input of the model's former one.

        A student can have another family and fewer positions than the checkpoint that the change was planned for.
        """
        tokenizer = copy.deepcopy(self.tokenizer)
        tokenizer.model_max_length = former.model_max_length
        tokenizer.model_input_names = list(former.model_input_names)
        return tokenizer


def plan_vocabulary(
    source: Checkpoint, options: VocabularyOptions, written: PreTrainedConfig
) -> VocabularyChange | None:
    """Choose the new vocabulary of a checkpoint; None where no option asks for one. Its weights are not read.

    Args:
        source: the checkpoint.
        options: which vocabulary.
        written: the config of the model that gets it, which may be a student of another family.

    Raises:
        SqueezeError: a text or a tokenizer cannot be read, the tokenizer cannot be cut, or it does not fit the model.
        UsageError: nothing would change, or an option has a wrong value.
    """
    options.check_vocabulary()
    _check_field(options)
    if options.tokenizer:
        return _plan_move(source, options.tokenizer, written)
    return _plan_cut(source, options) if options.vocab_keep else None


def _check_field(options: Any) -> None:
    """Check that --field is of use: that a text of --vocab-keep or --calibration has records."""
    if is_given(options, "field"):
        texts = [*options.vocab_keep, *([options.calibration] if options.calibration else [])]
        check_field("--field", [text for text in texts if not may_be_labelled(text)])


def _plan_cut(source: Checkpoint, options: VocabularyOptions) -> VocabularyChange:
    config, tokenizer = load_config(source), load_tokenizer(source)
    content = TokenizerContent.of(tokenizer)
    texts = CountedTexts.of(options.vocab_keep, options.field, source.task)
    usage = texts.count(tokenizer)
    kept = choose_tokens(content, usage.counts.tolist(), options.vocab_size, named_ids(config))
    if len(kept.ids) == config.vocab_size:
        raise UsageError(
            f"all {config.vocab_size:,} tokens would be kept; give less text with --vocab-keep, or a --vocab-size"
        )
    cut = cut_tokenizer(tokenizer, content, kept.ids)
    facts = {"vocabulary_before": config.vocab_size, "vocabulary_after": len(kept.ids)}
    coverage = int(usage.counts[list(kept.ids)].sum()) / usage.total
    facts |= {"tokens_of_text": usage.total, "coverage": coverage}
    if coverage < 1 and not any(map(is_stream, options.vocab_keep)):
        with collect_warnings(), quietly():  # the first count has said what is read
            facts["tokens_of_text_after"] = texts.count(cut).total
    if loses_tokens(facts):
        warn(
            f"{1 - coverage:.1%} of the tokens of the text are lost, and the model was not trained on the several that "
            "each becomes: train it after this cut, or keep more tokens (a larger --vocab-size, or none)"
        )
    return VocabularyChange(
        cut, [[number] for number in kept.ids], _cut_steps(source, kept, config.vocab_size, facts), facts, is_cut=True
    )


def loses_tokens(facts: Mapping[str, Any]) -> bool:
    """Return whether a cut, by its facts, loses so many tokens of the text that a training must follow."""
    return float(facts.get("coverage", 1)) < _LEAST_COVERAGE


def _cut_steps(source: Checkpoint, kept: KeptTokens, before: int, facts: Mapping[str, Any]) -> tuple[str, ...]:
    steps = [
        f"keep {len(kept.ids):,} of {before:,} tokens ({len(kept.ids) / before:.0%}): {kept.others:,} that occur, "
        f"{kept.characters:,} of single characters and {kept.special:,} special ones"
    ]
    coverage = f"the kept tokens are {facts['coverage']:.2%} of the {facts['tokens_of_text']:,} tokens of the text"
    if "tokens_of_text_after" in facts:
        longer = facts["tokens_of_text_after"] / facts["tokens_of_text"] - 1
        coverage += f", which takes {longer:.2%} more tokens"
    steps.append(coverage)
    file = sentencepiece_file(source.path)
    if file is not None:
        steps.append(f"leave out {file.name}, which has the former vocabulary: tokenizer.json has the kept one")
    return tuple(steps)


def _plan_move(source: Checkpoint, name: str, written: PreTrainedConfig) -> VocabularyChange:
    config, former = load_config(source), load_tokenizer(source)
    path, longest = locate(name, weights=False), longest_input(written)
    check_files(path)
    target = Checkpoint(path, name)
    read_as = tokenizer_family(target, family_of(config))
    new = build_tokenizer(target, read_as, longest, token_types=takes_token_types(written))
    rows = vocabulary_size(new)
    check_tokenizer(new, rows)
    check_padding(new, written, "take a model of another family")
    if new.get_vocab() == former.get_vocab():
        raise UsageError(f"{source.name} has the vocabulary of --tokenizer {name} already; give another tokenizer")
    found = find_former_tokens(former, new, rows)
    facts = {
        "vocabulary_before": config.vocab_size,
        "vocabulary_after": rows,
        "copied": found.copied,
        "averaged": found.averaged,
        "random": found.random,
    }
    steps = [
        f"move from {config.vocab_size:,} tokens to the {rows:,} of {name}: {found.copied:,} are former tokens, "
        f"{found.averaged:,} start as the mean of several, {found.random:,} are random"
    ]
    if new.model_max_length < longest:
        # `vocab` always writes a limit, so nothing tells a user's choice from its default.
        steps.append(
            f"keep the longest input of the model, and not the {new.model_max_length:,} tokens that {name} sets"
        )
    return VocabularyChange(new, found.sources, tuple(steps), facts, is_cut=False)


def describe_savings(before: Mapping[str, int], after: Mapping[str, int]) -> str:
    """Return size and share of the embeddings before and after, from the parameters by part."""
    sizes = [f"{parts['total'] * _BYTES / 1e6:,.1f} MB" for parts in (before, after)]
    shares = [f"{parts['embeddings'] / parts['total']:.0%}" for parts in (before, after)]
    return f"{sizes[0]} become {sizes[1]}; embeddings are {shares[0]} of the parameters before and {shares[1]} after"
