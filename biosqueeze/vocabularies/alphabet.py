"""Choose the characters of a vocabulary: the most frequent ones, so that rare Unicode does not fill it."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Alphabet:
    """The characters that are pieces of their own, in the order of their code points.

    Args:
        characters: those that were chosen, normalized.
        dropped: number of different characters that were not.
        removed: a table for `str.translate` that puts a space in place of characters as they are written.
    """

    characters: tuple[str, ...]
    dropped: int
    removed: Mapping[int, str]

    def clean(self, line: str) -> str:
        """Return a line without the characters that are not in the alphabet."""
        return line.translate(self.removed) if self.removed else line


def choose_alphabet(written: Mapping[str, int], normalize: Callable[[str], str], limit: int) -> Alphabet:
    """Choose the most frequent characters of a text after its normalization; of equal ones the lower code points.

    Args:
        written: how often each character occurs in the text.
        normalize: the normalizer of the tokenizer, which may lower-case, and split accents off.
        limit: number of characters to choose.
    """
    forms = {character: normalize(character).strip() for character in written}
    counts: Counter[str] = Counter()
    for character, form in forms.items():
        for part in form:
            counts[part] += written[character]
    ordered = sorted(counts, key=lambda part: (-counts[part], part))
    chosen = set(ordered[:limit])
    removed = {ord(character): " " for character, form in forms.items() if not chosen.issuperset(form)}
    return Alphabet(tuple(sorted(chosen)), len(ordered) - len(chosen), removed)
