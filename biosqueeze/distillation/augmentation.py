"""Augment labelled examples: replace words by proposals of a masked language model.

TinyBERT's data augmentation (Jiao et al. 2020, section 3.2 and algorithm 1; p_t = 0.4, K = 15), with two differences. A
word of several tokens is replaced by a single mask, where TinyBERT takes its neighbours in GloVe. And words of entities
are never replaced, so that the tags stay valid.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from biosqueeze.checkpoint import Checkpoint, open_checkpoint
from biosqueeze.data.blocks import Frame, Ids
from biosqueeze.data.collate import Features, pad
from biosqueeze.distillation.request import AugmentationSettings
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.models.heads import mlm_logits
from biosqueeze.models.inputs import model_inputs
from biosqueeze.models.load import load_model, load_tokenizer
from biosqueeze.progress import note, track
from biosqueeze.tasks.encoding.sequences import TextExample
from biosqueeze.tasks.encoding.tag_schemes import OUTSIDE
from biosqueeze.tasks.encoding.word_windows import WordPieces, tokenize_sentences
from biosqueeze.tasks.readers.tagged import Sentence
from biosqueeze.training.device import own_device

# Returns new examples for labelled ones.
Augmentation = Callable[[Sequence[Any]], list[Any]]

KINDS = ("ner", "pico", "classification")
REPLACED = 0.4  # p_t: the probability that a word is replaced
CANDIDATES = 15  # K
LENGTH = 128  # tokens of context that the masked language model reads
BATCH = 64

# Words (a hyphenated word is one), numbers and punctuation.
_TOKENS = re.compile(r"\w+(?:[-'\u2019]\w+)*|[^\w\s]")


@dataclass(frozen=True)
class MaskedWord:
    """A word that is masked to get proposals for its place."""

    text: int
    word: int


@dataclass(frozen=True)
class ReplaceableText:
    """An example as words."""

    words: tuple[str, ...]
    free: Ids  # indices of the words that may be replaced: alphabetic, and in no entity
    spans: tuple[tuple[int, int], ...] = ()  # character range of each word, where there is a text


@dataclass(frozen=True)
class Draws:
    """The random choices for one example."""

    replaced: NDArray[np.bool_]  # (copies, free words)
    ranks: Ids  # (copies, free words) index of the candidate


def augment(examples: Sequence[Any], copies: int, proposer: "Proposer", seed: int) -> list[Any]:
    """Return new examples with the labels of their originals, without duplicates of one original.

    Args:
        examples: sentences with tags, or labelled texts.
        copies: attempts for each.
        proposer: proposes words.
        seed: of all random choices; those of an example depend on its number alone.
    """
    texts = [text_of(example) for example in examples]
    draws = [_draw(len(text.free), copies, len(proposer), seed, number) for number, text in enumerate(texts)]
    masked = [
        MaskedWord(number, int(word))
        for number, (text, draw) in enumerate(zip(texts, draws, strict=True))
        for word in text.free[draw.replaced.any(axis=0)]
    ]
    proposals = proposer.propose([text.words for text in texts], masked)
    candidates = {(place.text, place.word): row for place, row in zip(masked, proposals, strict=True)}

    def proposed(number: int, word: int, rank: int) -> str:
        return proposer.words[int(candidates[number, word][rank])]

    return [
        with_words(example, text, words)
        for number, (example, text, draw) in enumerate(zip(examples, texts, draws, strict=True))
        for words in _copies(text, draw, partial(proposed, number))
    ]


def _copies(text: ReplaceableText, draw: Draws, proposed: Callable[[int, int], str]) -> Iterator[tuple[str, ...]]:
    """Yield the distinct results of the replacements, without the original."""
    known = {text.words}
    for replaced, ranks in zip(draw.replaced, draw.ranks, strict=True):
        words = list(text.words)
        for word, rank in zip(text.free[replaced].tolist(), ranks[replaced].tolist(), strict=True):
            words[word] = with_case_of(words[word], proposed(word, rank))
        if tuple(words) not in known:
            known.add(tuple(words))
            yield tuple(words)


def _draw(free: int, copies: int, words: int, seed: int, number: int) -> Draws:
    rng = np.random.default_rng([seed, number])
    replaced = rng.random((copies, free)) < REPLACED
    return Draws(replaced, rng.integers(min(CANDIDATES, words), size=(copies, free)))


def text_of(example: Sentence | TextExample) -> ReplaceableText:
    """Split an example into words, and select those that may be replaced."""
    if isinstance(example, Sentence):
        free = [w.isalpha() and tag == OUTSIDE for w, tag in zip(example.words, example.tags, strict=True)]
        return ReplaceableText(example.words, np.flatnonzero(free))
    matches = list(_TOKENS.finditer(example.texts[0]))
    words = tuple(match[0] for match in matches)
    spans = tuple(match.span() for match in matches)
    return ReplaceableText(words, np.flatnonzero([word.isalpha() for word in words]), spans)


def with_words(example: Any, text: ReplaceableText, words: Sequence[str]) -> Any:
    """Return the example with other words and the same labels."""
    if isinstance(example, Sentence):
        return replace(example, words=tuple(words), text="", offsets=())
    original, parts, end = example.texts[0], [], 0
    for (start, stop), word in zip(text.spans, words, strict=True):
        parts += [original[end:start], word]
        end = stop
    return replace(example, texts=("".join([*parts, original[end:]]),))


def with_case_of(word: str, candidate: str) -> str:
    """Capitalize the candidate where the word is capitalized: an uncased model proposes lower case only."""
    return candidate.capitalize() if word.istitle() and candidate.islower() else candidate


class Proposer:
    """A masked language model that proposes words for masked places."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, precision: str = "fp32") -> None:
        self.model, self.tokenizer, self.precision = model, tokenizer, precision
        self.frame = Frame.of(tokenizer)
        self.room = min(LENGTH, tokenizer.model_max_length) - len(self.frame) - 1
        self.ids = word_tokens(tokenizer)  # (words,)
        self.words = tuple(_decoded(tokenizer, token) for token in self.ids.tolist())

    def __len__(self) -> int:
        """Return the number of words that can be proposed."""
        return len(self.ids)

    def propose(self, texts: Sequence[Sequence[str]], places: Sequence[MaskedWord], batch_size: int = BATCH) -> Ids:
        """Return the most probable words for each place, (places, K) indices into `words`, the best first.

        Each place is masked alone; the other words keep their originals.
        """
        pieces = list(tokenize_sentences([Sentence(tuple(words), ()) for words in texts], self.tokenizer))
        masked = [self._masked(pieces[place.text], place.word) for place in places]
        best = np.zeros((len(places), min(CANDIDATES, len(self))), dtype=np.int64)
        device = own_device()
        self.model.to(device)  # type: ignore[arg-type]
        order = np.argsort([len(features["input_ids"]) for features in masked], kind="stable")
        with track("propose words", total=len(places)) as progress:
            for start in range(0, len(order), batch_size):
                batch = order[start : start + batch_size]
                best[batch] = self._best([masked[item] for item in batch], device)
                progress.advance(len(batch))
        self.model.to("cpu")  # type: ignore[arg-type]
        return best

    def _masked(self, pieces: WordPieces, word: int) -> Features:
        """Encode the text around a masked word: `input_ids` (length,) with special tokens, and its position `at` ()."""
        before, after = pieces.ids[pieces.owners < word], pieces.ids[pieces.owners > word]
        left = min(len(before), max(self.room // 2, self.room - len(after)))
        context = before[len(before) - left :], [int(self.tokenizer.mask_token_id)], after[: self.room - left]
        ids = self.frame.around(np.concatenate(context).astype(np.int64))
        return {"input_ids": ids, "at": np.array(len(self.frame.before) + left)}

    @torch.inference_mode()
    def _best(self, sequences: Sequence[Features], device: torch.device) -> Ids:
        """Return the most probable words of each sequence, (sequences, K)."""
        padded = pad(sequences, int(self.tokenizer.pad_token_id))
        batch = {name: torch.from_numpy(array).to(device) for name, array in padded.items()}
        with torch.autocast(device.type, torch.bfloat16, enabled=self.precision == "bf16"):
            hidden = self.model.base_model(**model_inputs(self.model, batch)).last_hidden_state
            logits = mlm_logits(self.model, hidden[torch.arange(len(hidden), device=device), batch["at"]])
        words = logits[:, torch.from_numpy(self.ids).to(device)].float()  # (sequences, words)
        best: Ids = words.topk(min(CANDIDATES, len(self)), dim=-1).indices.cpu().numpy()
        return best


def word_tokens(tokenizer: PreTrainedTokenizerBase) -> Ids:
    """Return the ids of the tokens that are whole alphabetic words: the tokenizer maps each word to this one token."""
    decoded = ((token, _decoded(tokenizer, token)) for token in sorted(tokenizer.get_vocab().values()))
    alphabetic = [(token, text) for token, text in decoded if text.isalpha()]
    pieces = tokenize_sentences([Sentence((text,), ()) for _, text in alphabetic], tokenizer)
    words = [token for (token, _), encoded in zip(alphabetic, pieces, strict=True) if encoded.ids.tolist() == [token]]
    return np.array(words, dtype=np.int64)


def _decoded(tokenizer: PreTrainedTokenizerBase, token: int) -> str:
    return str(tokenizer.decode([token])).strip()


def open_proposer(settings: AugmentationSettings, teacher: Checkpoint, precision: str) -> Proposer:
    """Load the model of --augment-with, or the one that the teacher was fine-tuned from.

    Raises:
        UsageError: it has no masked-language-model head, or the teacher does not record its origin.
        SqueezeError: it does not load.
    """
    checkpoint = open_checkpoint(settings.checkpoint) if settings.checkpoint else source_of(teacher)
    loaded, tokenizer = load_model(checkpoint, "mlm"), load_tokenizer(checkpoint)
    if not loaded.has_head or tokenizer.mask_token_id is None:
        role = "" if settings.checkpoint else f", which {teacher.name} was fine-tuned from,"
        raise UsageError(
            f"{checkpoint.name}{role} has no masked-language-model head, so it cannot propose words; {_GIVE}"
        )
    proposer = Proposer(loaded.model, tokenizer, precision)
    if not proposer.words:
        raise UsageError(f"the vocabulary of {checkpoint.name} has no whole words to propose; {_GIVE}")
    note(f"--augment {settings.copies}: words are proposed by {checkpoint.name}")
    return proposer


_GIVE = "name a checkpoint that has one: --augment-with dmis-lab/biobert-base-cased-v1.2"


def source_of(teacher: Checkpoint) -> Checkpoint:
    """Open the checkpoint that a teacher was fine-tuned from, by its manifest.

    Raises:
        UsageError: the manifest does not record it, or that checkpoint is missing or has changed.
    """
    tuned = [entry for entry in teacher.history if entry.stage == "finetune"]
    if not tuned:
        raise UsageError(
            f"{teacher.name} does not record what it was fine-tuned from, which would propose words; {_GIVE}"
        )
    parent = tuned[-1].parent
    try:
        checkpoint = open_checkpoint(parent.name)
    except SqueezeError as error:
        raise UsageError(f"{teacher.name} was fine-tuned from {parent.name}, but {error}; or {_GIVE}") from error
    if checkpoint.weights_sha256() != parent.sha256:
        raise UsageError(f"{checkpoint.name} has changed since {teacher.name} was fine-tuned from it; {_GIVE}")
    return checkpoint


def build_augmentation(
    settings: AugmentationSettings | None, kind: str | None, teacher: Checkpoint, precision: str
) -> Augmentation | None:
    """Build the function that augments labelled examples; None without --augment.

    Args:
        settings: of --augment.
        kind: of the teacher's task.
        teacher: whose origin proposes words, where no other model is named.
        precision: "fp32" or "bf16".

    Raises:
        UsageError: the kind has no replaceable words, or no model can propose any.
    """
    if settings is None:
        return None
    check_kind(str(kind))
    proposer = open_proposer(settings, teacher, precision)

    def augmentation(examples: Sequence[Any]) -> list[Any]:
        added = augment(examples, settings.copies, proposer, settings.seed)
        note(f"augmented: {len(added):,} examples added to {len(examples):,}")
        return added

    return augmentation


def check_kind(kind: str) -> None:
    """Check that replacing words keeps the labels of a kind valid.

    Raises:
        UsageError: it does not.
    """
    if kind not in KINDS:
        raise UsageError(f"--augment works for {', '.join(KINDS)}, and this teacher's task is {kind}; leave it out")
