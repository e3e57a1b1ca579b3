"""Options of `shrink` that change the vocabulary. Torch-free."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from biosqueeze.errors import UsageError
from biosqueeze.options import Bounds, Excludes, Group, OnDisk, Requires


@dataclass(frozen=True, kw_only=True)
class VocabularyOptions:
    """Options of a cut of the vocabulary, and of the move to another one."""

    vocab_keep: Annotated[
        tuple[str, ...],
        "Text whose tokens are kept, repeatable: .txt, .jsonl, .gz, what biosqueeze corpus wrote, hub:NAME, or the "
        "directory of a task (train and dev). Special tokens and single characters are kept too.",
        OnDisk(),
        Group.VOCABULARY,
    ] = ()
    vocab_size: Annotated[
        int | None,
        "Most tokens to keep: the most frequent ones of that text. Default: all that occur.",
        Bounds(least=1),
        Requires("vocab_keep", why="the frequencies are those of a text"),
        Group.VOCABULARY,
    ] = None
    field: Annotated[
        str, "Field of a JSONL record that holds the text.", Requires("vocab_keep", "calibration"), Group.VOCABULARY
    ] = "text"
    tokenizer: Annotated[
        str | None,
        "Move the model to the vocabulary of this tokenizer: a directory (biosqueeze vocab), a checkpoint or a Hub id. "
        "A new token starts as the mean of the former tokens of its text.",
        Excludes("vocab_keep", why="the vocabulary of the tokenizer would be cut; run shrink twice"),
        OnDisk(may_be_name=True),
        Group.VOCABULARY,
    ] = None

    @property
    def changes_vocabulary(self) -> bool:
        """Whether the vocabulary is cut or replaced."""
        return bool(self.vocab_keep or self.tokenizer)

    def check_vocabulary(self) -> None:
        """Check that no number was given as a text.

        Raises:
            UsageError: one was.
        """
        number = next((text for text in self.vocab_keep if text.isdecimal() and not Path(text).exists()), None)
        if number is not None:
            raise UsageError(
                f"--vocab-keep {number} is a number, and a text was expected, whose frequencies decide which tokens "
                f"are kept; give --vocab-keep CORPUS --vocab-size {number}"
            )
