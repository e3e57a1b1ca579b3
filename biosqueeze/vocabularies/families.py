"""The kinds of vocabulary, and the encoder families that use them, one row each. Torch-free."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from biosqueeze.errors import UsageError

Kind = Literal["wordpiece", "bpe", "unigram"]
FamilyName = Literal["bert", "roberta", "electra", "albert", "distilbert"]
WITHIN_WORD = "##"
"""The mark of WordPiece before a piece that continues a word."""
SPACE = "\u2581"
"""The mark of SentencePiece for the space before a word."""
_BERT_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


@dataclass(frozen=True)
class VocabularyFamily:
    """What an encoder family expects of its tokenizer."""

    name: FamilyName
    kind: Kind
    tokenizer: str
    """The class of transformers that has the family's normalizer, pre-tokenizer and post-processor."""
    first: tuple[str, ...] = _BERT_TOKENS
    """Special tokens with the ids from 0."""
    last: tuple[str, ...] = ()
    """Special tokens with the highest ids."""
    can_be_uncased: bool = True

    @property
    def special_tokens(self) -> tuple[str, ...]:
        """All special tokens, in the order of their ids."""
        return self.first + self.last


FAMILIES: Mapping[str, VocabularyFamily] = {
    family.name: family
    for family in (
        VocabularyFamily("bert", "wordpiece", "BertTokenizer"),
        VocabularyFamily(
            "roberta",
            "bpe",
            "RobertaTokenizer",
            first=("<s>", "<pad>", "</s>", "<unk>"),
            last=("<mask>",),
            can_be_uncased=False,
        ),
        VocabularyFamily("albert", "unigram", "AlbertTokenizer", first=("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")),
        VocabularyFamily("electra", "wordpiece", "ElectraTokenizer"),
        VocabularyFamily("distilbert", "wordpiece", "DistilBertTokenizer"),
    )
}


def find_family(name: str | None, kind: str | None) -> VocabularyFamily:
    """Return the family of a name, or the first family of a kind; BERT where neither is given.

    Raises:
        UsageError: the family has another kind of vocabulary.
    """
    if name is None:
        return next(family for family in FAMILIES.values() if kind in (None, family.kind))
    family = FAMILIES[name]
    if kind not in (None, family.kind):
        fitting = " or ".join(other.name for other in FAMILIES.values() if other.kind == kind)
        raise UsageError(
            f"--family {name} has a {family.kind} vocabulary, not {kind}; leave out --kind, or give --family {fitting}"
        )
    return family
