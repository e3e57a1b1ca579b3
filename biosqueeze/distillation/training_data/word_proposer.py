"""Propose words for masked places: the most probable whole words of a masked language model."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from biosqueeze.checkpoint import Checkpoint, open_checkpoint
from biosqueeze.data.collate import Features, pad
from biosqueeze.data.text.blocks import Frame, Ids
from biosqueeze.distillation.request import AugmentationSettings
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.models.custom_heads.files import predicts_masked
from biosqueeze.models.device import own_device
from biosqueeze.models.heads import mlm_logits
from biosqueeze.models.inputs import model_inputs
from biosqueeze.models.loading.load import load_model, load_tokenizer
from biosqueeze.progress import note, track
from biosqueeze.tasks.encoding.word_windows import WordPieces, tokenize_sentences
from biosqueeze.tasks.readers.tagged import Sentence

CANDIDATES = 15  # words proposed for a place (TinyBERT's K)
LENGTH = 128  # tokens of context that the masked language model reads
BATCH = 64
_GIVE = "name a checkpoint that has one: --augment-with dmis-lab/biobert-base-cased-v1.2"


@dataclass(frozen=True)
class MaskedWord:
    """A word that is masked to get proposals for its place."""

    text: int
    word: int


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
        UsageError: it has no masked-language-model head, or the teacher does not record what it was fine-tuned from.
        SqueezeError: it does not load.
    """
    checkpoint = checked_proposer(settings, teacher)
    proposer = Proposer(load_model(checkpoint, "mlm").model, load_tokenizer(checkpoint), precision)
    if not proposer.words:
        raise UsageError(f"the vocabulary of {checkpoint.name} has no whole words to propose; {_GIVE}")
    note(f"--augment {settings.copies}: words are proposed by {checkpoint.name}")
    return proposer


def checked_proposer(settings: AugmentationSettings, teacher: Checkpoint, *, weights: bool = True) -> Checkpoint:
    """Open the checkpoint that proposes words, and check that it can; no weights are loaded.

    Args:
        settings: of --augment.
        teacher: of the distillation.
        weights: whether the weights of a Hub id are fetched too.

    Raises:
        UsageError: see `open_proposer`.
        SqueezeError: it does not open.
    """
    named = settings.checkpoint
    checkpoint = open_checkpoint(named, weights=weights) if named else source_of(teacher, weights=weights)
    if not predicts_masked(checkpoint) or load_tokenizer(checkpoint).mask_token_id is None:
        role = "" if named else f", which {teacher.name} was fine-tuned from,"
        raise UsageError(
            f"{checkpoint.name}{role} has no masked-language-model head, so it cannot propose words; {_GIVE}"
        )
    return checkpoint


def source_of(teacher: Checkpoint, *, weights: bool = True) -> Checkpoint:
    """Open the checkpoint that a teacher was fine-tuned from, by its manifest.

    Args:
        teacher: the teacher.
        weights: whether its weights are fetched from the Hub, and compared with those that the manifest records.

    Raises:
        UsageError: the manifest does not record it, or that checkpoint is missing or has changed.
    """
    tuned = [entry for entry in teacher.history if entry.stage == "finetune"]
    if not tuned:
        raise UsageError(
            f"{teacher.name} does not record what it was fine-tuned from, which would propose words; {_GIVE}"
        )
    parent = tuned[-1].parents["parent"]
    try:
        checkpoint = open_checkpoint(parent.name, weights=weights)
    except SqueezeError as error:
        raise UsageError(f"{teacher.name} was fine-tuned from {parent.name}, but {error}; or {_GIVE}") from error
    if weights and checkpoint.weights_sha256() != parent.sha256:
        raise UsageError(f"{checkpoint.name} has changed since {teacher.name} was fine-tuned from it; {_GIVE}")
    return checkpoint
