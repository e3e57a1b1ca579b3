"""More labelled examples: words replaced by what a masked language model proposes for their places.

TinyBERT's data augmentation (Jiao et al. 2020, section 3.2 and algorithm 1; p_t = 0.4, K = 15), with two differences. A
word of several pieces is hidden behind a single mask, where TinyBERT takes its neighbours in GloVe. And a word that
belongs to an entity stays as it is, so that the tags hold.
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
from biosqueeze.distillation.options import DistillationOptions
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.models.heads import mlm_logits
from biosqueeze.models.inputs import model_inputs
from biosqueeze.models.load import load_model, load_tokenizer
from biosqueeze.progress import note, track
from biosqueeze.tasks.encoding.sequences import Labelled
from biosqueeze.tasks.encoding.tag_schemes import OUTSIDE
from biosqueeze.tasks.encoding.word_windows import Pieces, pieces_of
from biosqueeze.tasks.readers.tagged import Sentence
from biosqueeze.training.device import own_device
from biosqueeze.training.precision import precision_of

# New examples from labelled ones.
Augmentation = Callable[[Sequence[Any]], list[Any]]

KINDS = ("ner", "pico", "classification")
REPLACED = 0.4  # p_t: the chance of each word
CANDIDATES = 15  # K
LENGTH = 128  # tokens around a word that the model sees
BATCH = 64

# Words, numbers and what stands between them; a hyphenated word is one.
_TOKENS = re.compile(r"\w+(?:[-'\u2019]\w+)*|[^\w\s]")


@dataclass(frozen=True)
class Blank:
    """A word that is hidden, to see what else could stand there."""

    text: int
    word: int


@dataclass(frozen=True)
class Text:
    """An example as words."""

    words: tuple[str, ...]
    free: Ids  # (words that may be replaced,) their indices: those of letters alone, and not of an entity
    spans: tuple[tuple[int, int], ...] = ()  # of each word in the text, where there is one


@dataclass(frozen=True)
class Draws:
    """What chance decides for one example."""

    replaced: NDArray[np.bool_]  # (copies, free words)
    ranks: Ids  # (copies, free words) which of the candidates


def augmented(examples: Sequence[Any], copies: int, proposer: "Proposer", seed: int) -> list[Any]:
    """New examples, with the labels of those that they were made from; what was there already is not among them.

    Args:
        examples: sentences with tags, or labelled texts.
        copies: tries for each.
        proposer: knows what else could stand somewhere.
        seed: of all that is chance; each example has its own, whatever else there is.
    """
    texts = [text_of(example) for example in examples]
    draws = [_draw(len(text.free), copies, len(proposer), seed, number) for number, text in enumerate(texts)]
    blanks = [
        Blank(number, int(word))
        for number, (text, draw) in enumerate(zip(texts, draws, strict=True))
        for word in text.free[draw.replaced.any(axis=0)]
    ]
    found = proposer.propose([text.words for text in texts], blanks)
    candidates = {(blank.text, blank.word): row for blank, row in zip(blanks, found, strict=True)}

    def proposed(number: int, word: int, rank: int) -> str:
        return proposer.words[int(candidates[number, word][rank])]

    return [
        rebuilt(example, text, words)
        for number, (example, text, draw) in enumerate(zip(examples, texts, draws, strict=True))
        for words in _copies(text, draw, partial(proposed, number))
    ]


def _copies(text: Text, draw: Draws, proposed: Callable[[int, int], str]) -> Iterator[tuple[str, ...]]:
    """The text with other words, each result once, and never the text itself."""
    known = {text.words}
    for replaced, ranks in zip(draw.replaced, draw.ranks, strict=True):
        words = list(text.words)
        for word, rank in zip(text.free[replaced].tolist(), ranks[replaced].tolist(), strict=True):
            words[word] = in_case_of(words[word], proposed(word, rank))
        if tuple(words) not in known:
            known.add(tuple(words))
            yield tuple(words)


def _draw(free: int, copies: int, words: int, seed: int, number: int) -> Draws:
    rng = np.random.default_rng([seed, number])
    replaced = rng.random((copies, free)) < REPLACED
    return Draws(replaced, rng.integers(min(CANDIDATES, words), size=(copies, free)))


def text_of(example: Sentence | Labelled) -> Text:
    """The words of an example, and which of them may be replaced."""
    if isinstance(example, Sentence):
        free = [w.isalpha() and tag == OUTSIDE for w, tag in zip(example.words, example.tags, strict=True)]
        return Text(example.words, np.flatnonzero(free))
    found = list(_TOKENS.finditer(example.texts[0]))
    words = tuple(match[0] for match in found)
    return Text(words, np.flatnonzero([word.isalpha() for word in words]), tuple(match.span() for match in found))


def rebuilt(example: Any, text: Text, words: Sequence[str]) -> Any:
    """The example with other words, and all else as it is."""
    if isinstance(example, Sentence):
        return replace(example, words=tuple(words), text="", offsets=())
    whole, parts, end = example.texts[0], [], 0
    for (start, stop), word in zip(text.spans, words, strict=True):
        parts += [whole[end:start], word]
        end = stop
    return replace(example, texts=("".join([*parts, whole[end:]]),))


def in_case_of(word: str, candidate: str) -> str:
    """The candidate, capitalised where the word is: a model that knows no capitals proposes none."""
    return candidate.capitalize() if word.istitle() and candidate.islower() else candidate


class Proposer:
    """A masked language model that says which words could stand somewhere."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, precision: str = "fp32") -> None:
        self.model, self.tokenizer, self.precision = model, tokenizer, precision
        self.frame = Frame.of(tokenizer)
        self.room = min(LENGTH, tokenizer.model_max_length) - len(self.frame) - 1
        self.ids = word_pieces(tokenizer)  # (words,)
        self.words = tuple(_written(tokenizer, one) for one in self.ids.tolist())

    def __len__(self) -> int:
        """How many words it knows."""
        return len(self.ids)

    def propose(self, texts: Sequence[Sequence[str]], blanks: Sequence[Blank], batch_size: int = BATCH) -> Ids:
        """The likeliest words for each blank, (blanks, K) indices into `words`, the likeliest first.

        A blank is hidden alone, the words around it stand as they are.
        """
        pieces = list(pieces_of([Sentence(tuple(words), ()) for words in texts], self.tokenizer))
        masked = [self._masked(pieces[blank.text], blank.word) for blank in blanks]
        best = np.zeros((len(blanks), min(CANDIDATES, len(self))), dtype=np.int64)
        device = own_device()
        self.model.to(device)  # type: ignore[arg-type]
        order = np.argsort([len(features["input_ids"]) for features in masked], kind="stable")
        with track("propose words", total=len(blanks)) as progress:
            for start in range(0, len(order), batch_size):
                batch = order[start : start + batch_size]
                best[batch] = self._likeliest([masked[item] for item in batch], device)
                progress.advance(len(batch))
        self.model.to("cpu")  # type: ignore[arg-type]
        return best

    def _masked(self, pieces: Pieces, word: int) -> Features:
        """The text around a word that is hidden: `input_ids` (length,) with special tokens, and `at` (): where."""
        before, after = pieces.ids[pieces.owners < word], pieces.ids[pieces.owners > word]
        left = min(len(before), max(self.room // 2, self.room - len(after)))
        shown = before[len(before) - left :], [int(self.tokenizer.mask_token_id)], after[: self.room - left]
        ids = self.frame.around(np.concatenate(shown).astype(np.int64))
        return {"input_ids": ids, "at": np.array(len(self.frame.before) + left)}

    @torch.inference_mode()
    def _likeliest(self, sequences: Sequence[Features], device: torch.device) -> Ids:
        """(sequences, K)."""
        padded = pad(sequences, int(self.tokenizer.pad_token_id))
        batch = {name: torch.from_numpy(array).to(device) for name, array in padded.items()}
        with torch.autocast(device.type, torch.bfloat16, enabled=self.precision == "bf16"):
            hidden = self.model.base_model(**model_inputs(self.model, batch)).last_hidden_state
            logits = mlm_logits(self.model, hidden[torch.arange(len(hidden), device=device), batch["at"]])
        words = logits[:, torch.from_numpy(self.ids).to(device)].float()  # (sequences, words)
        best: Ids = words.topk(min(CANDIDATES, len(self)), dim=-1).indices.cpu().numpy()
        return best


def word_pieces(tokenizer: PreTrainedTokenizerBase) -> Ids:
    """Ids of the pieces that are words: letters alone, for which the tokenizer gives this piece and no other."""
    decoded = ((one, _written(tokenizer, one)) for one in sorted(tokenizer.get_vocab().values()))
    likely = [(one, text) for one, text in decoded if text.isalpha()]
    pieces = pieces_of([Sentence((text,), ()) for _, text in likely], tokenizer)
    words = [one for (one, _), own in zip(likely, pieces, strict=True) if own.ids.tolist() == [one]]
    return np.array(words, dtype=np.int64)


def _written(tokenizer: PreTrainedTokenizerBase, piece: int) -> str:
    return str(tokenizer.decode([piece])).strip()


def open_proposer(options: DistillationOptions, teacher: Checkpoint) -> Proposer:
    """The model that --augment-with names, or the one that the teacher was fine-tuned from.

    Raises:
        UsageError: it has no masked-language-model head, or there is no way to know which one it is.
        SqueezeError: it does not load.
    """
    checkpoint = open_checkpoint(options.augment_with) if options.augment_with else origin_of(teacher)
    loaded, tokenizer = load_model(checkpoint, "mlm"), load_tokenizer(checkpoint)
    if not loaded.has_head or tokenizer.mask_token_id is None:
        said = "" if options.augment_with else f", which {teacher.name} was fine-tuned from,"
        raise UsageError(f"{checkpoint.name}{said} has no masked-language-model head, so it proposes no words; {_GIVE}")
    proposer = Proposer(loaded.model, tokenizer, precision_of(options))
    if not proposer.words:
        raise UsageError(f"the vocabulary of {checkpoint.name} has no piece that is a word, to propose; {_GIVE}")
    note(f"--augment {options.augment}: {checkpoint.name} proposes the words")
    return proposer


_GIVE = "name a checkpoint that has one: --augment-with dmis-lab/biobert-base-cased-v1.2"


def origin_of(teacher: Checkpoint) -> Checkpoint:
    """What a teacher was fine-tuned from, as its manifest says.

    Raises:
        UsageError: it says nothing, or that checkpoint is not there any more, or another one.
    """
    tuned = [entry for entry in teacher.history if entry.stage == "finetune"]
    if not tuned:
        raise UsageError(f"{teacher.name} does not say what it was fine-tuned from, to propose words; {_GIVE}")
    parent = tuned[-1].parent
    try:
        found = open_checkpoint(parent.name)
    except SqueezeError as error:
        raise UsageError(f"{teacher.name} was fine-tuned from {parent.name}, but {error}; or {_GIVE}") from error
    if found.weights_sha256() != parent.sha256:
        raise UsageError(f"{found.name} is not what {teacher.name} was fine-tuned from any more; {_GIVE}")
    return found


def augmentation_of(options: DistillationOptions, kind: str | None, teacher: Checkpoint) -> Augmentation | None:
    """What --augment makes of labelled examples, if it was asked for.

    Args:
        options: of the stage.
        kind: of the teacher's task.
        teacher: says which model it was made of, where no other one is named.

    Raises:
        UsageError: the kind has no words that can be replaced, or no model is there that proposes any.
    """
    if not options.augment:
        return None
    check_kind(str(kind))
    proposer = open_proposer(options, teacher)

    def more(examples: Sequence[Any]) -> list[Any]:
        made = augmented(examples, options.augment, proposer, options.seed)
        note(f"augmented: {len(made):,} examples more, of {len(examples):,}")
        return made

    return more


def check_kind(kind: str) -> None:
    """Only some kinds have words that can be replaced without another answer becoming true.

    Raises:
        UsageError: this one has none.
    """
    if kind not in KINDS:
        raise UsageError(f"--augment works for {', '.join(KINDS)}, and this teacher's task is {kind}; leave it out")
