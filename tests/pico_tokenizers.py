"""Tokenizers of the pico checkpoints over invented medical-looking words, one function for each kind of vocabulary."""

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

_GLUE = tuple("the of and in with a to was is for patients cells gene protein mutation treatment".split())  # noqa: SIM905
_SYLLABLES = tuple("car ci no ma neu ro pa thy hep ti tis fib ros gly co lin".split())  # noqa: SIM905
_SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


BRACKETED = {
    "unk_token": "[UNK]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
}
ANGLED = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "cls_token": "<s>",
    "sep_token": "</s>",
    "unk_token": "<unk>",
    "pad_token": "<pad>",
    "mask_token": "<mask>",
}
BARRED = {
    "bos_token": "<|begin_of_text|>",
    "eos_token": "<|end_of_text|>",
    "pad_token": "<|end_of_text|>",
    "mask_token": "<|mask|>",
}
MIXED = BRACKETED | {"unk_token": "<unk>", "pad_token": "<pad>"}


@dataclass(frozen=True)
class Kind:
    """How a family's tokenizer is made: of a cased or a lower-casing vocabulary, with its special tokens."""

    core: Callable[[bool], Tokenizer]
    specials: Mapping[str, str]


def words() -> tuple[str, ...]:
    """Invented medical-looking words: two or three syllables each."""
    pairs = ("".join(p) for p in itertools.product(_SYLLABLES, repeat=2))
    triples = ("".join(p) for p in itertools.product(_SYLLABLES[:4], repeat=3))
    return (*_GLUE, *itertools.islice(pairs, 96), *triples)


def sentences(count: int, seed: int = 0) -> Iterator[str]:
    """Random sentences of those words, a few of them capitalised."""
    rng = random.Random(seed)
    known = words()
    for _ in range(count):
        chosen = rng.choices(known, k=rng.randint(4, 20))
        chosen[0] = chosen[0].capitalize()
        yield " ".join(chosen) + "."


def write_sentences(path: Path, count: int, seed: int = 0) -> Path:
    """Write a corpus of such sentences, one a line."""
    path.write_text("\n".join(sentences(count, seed)), encoding="utf-8")
    return path


def wordpieces(cased: bool) -> tuple[str, ...]:
    """A WordPiece vocabulary that spells every ASCII word: characters, their continuations, the words."""
    letters = [chr(c) for c in range(33, 127) if cased or not chr(c).isupper()]
    capitalised = [w.capitalize() for w in words()[:60]] + ["BRCA", "TP"] if cased else []
    continued = [f"##{letter}" for letter in letters if letter.isalnum()] + [f"##{s}" for s in _SYLLABLES]
    return tuple(dict.fromkeys([*_SPECIALS, *letters, *continued, *words(), *capitalised]))


def _wordpiece(cased: bool) -> Tokenizer:
    """BERT's tokenizer."""
    core = _pieces(wordpieces(cased), "[UNK]", cased)
    core.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return core


def _mpnet(cased: bool) -> Tokenizer:
    """BERT's pieces behind RoBERTa's special tokens; what is unknown is still [UNK], as in the published vocabulary."""
    core = _pieces(("<s>", "<pad>", "</s>", "<unk>", *wordpieces(cased), "<mask>"), "[UNK]", cased)
    core.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return core


def _pieces(vocabulary: Sequence[str], unknown: str, cased: bool) -> Tokenizer:
    core = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(vocabulary)}, unk_token=unknown))
    core.normalizer = normalizers.BertNormalizer(lowercase=not cased)
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    core.decoder = decoders.WordPiece(prefix="##")
    return core


@cache
def _byte_pairs_json(specials: tuple[str, ...] = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")) -> str:
    """A byte-level BPE tokenizer with these special tokens first, as JSON (training it once is enough)."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        show_progress=False,
        special_tokens=list(specials),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(sentences(200, seed=1), trainer)
    return tokenizer.to_str()


def _byte_pairs(cased: bool) -> Tokenizer:
    """RoBERTa's tokenizer."""
    del cased  # bytes have their case
    core = Tokenizer.from_str(_byte_pairs_json())
    core.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return core


def _bracketed_byte_pairs(cased: bool) -> Tokenizer:
    """ModernBERT's tokenizer: byte pairs in BERT's frame."""
    del cased
    core = Tokenizer.from_str(_byte_pairs_json(_SPECIALS))
    core.normalizer = normalizers.NFC()
    frame = [("[CLS]", 2), ("[SEP]", 3)]
    core.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]", frame)
    return core


def _barred_byte_pairs(cased: bool) -> Tokenizer:
    """EuroBERT's tokenizer: byte pairs between tokens of Llama's kind; padding has the id of the last one."""
    del cased
    core = Tokenizer.from_str(_byte_pairs_json(tuple(dict.fromkeys(BARRED.values()))))
    start, end = BARRED["bos_token"], BARRED["eos_token"]
    core.post_processor = processors.TemplateProcessing(
        f"{start} $A {end}", f"{start} $A {end} $B {end}", [(start, 0), (end, 1)]
    )
    return core


@cache
def _unigrams_json(cased: bool, specials: tuple[str, ...]) -> str:
    """A SentencePiece-like tokenizer with these special tokens first, as JSON."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC()] if cased else [normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=500,
        show_progress=False,
        special_tokens=list(specials),
        unk_token="[UNK]" if "[UNK]" in specials else "<unk>",
        initial_alphabet=[chr(c) for c in range(33, 127) if cased or not chr(c).isupper()],
    )
    tokenizer.train_from_iterator(sentences(200, seed=1), trainer)
    return tokenizer.to_str()


def _albert(cased: bool) -> Tokenizer:
    core = Tokenizer.from_str(_unigrams_json(cased, ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")))
    frame = [("[CLS]", 2), ("[SEP]", 3)]
    core.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", frame)
    return core


def _xlm_roberta(cased: bool) -> Tokenizer:
    return _framed(("<s>", "<pad>", "</s>", "<unk>"), cased)


def _camembert(cased: bool) -> Tokenizer:
    unused = ("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED")
    return _framed((*unused, "<s>", "</s>"), cased)


def _framed(specials: tuple[str, ...], cased: bool) -> Tokenizer:
    """Unigrams between <s> and </s>; <mask> has the highest id."""
    core = Tokenizer.from_str(_unigrams_json(cased, specials))
    core.add_special_tokens(["<mask>"])
    frame = [("<s>", specials.index("<s>")), ("</s>", specials.index("</s>"))]
    core.post_processor = processors.TemplateProcessing("<s> $A </s>", "<s> $A </s> </s> $B </s>", frame)
    return core


def _deberta(cased: bool) -> Tokenizer:
    """Unlike ALBERT's, the token that masks is behind the pieces, as in the published vocabularies."""
    core = Tokenizer.from_str(_unigrams_json(cased, ("[PAD]", "[CLS]", "[SEP]", "[UNK]")))
    core.add_special_tokens(["[MASK]"])
    frame = [("[CLS]", 1), ("[SEP]", 2)]
    core.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", frame)
    return core


BERT = Kind(_wordpiece, BRACKETED)
MPNET = Kind(_mpnet, ANGLED | {"unk_token": "[UNK]"})
MODERNBERT = Kind(_bracketed_byte_pairs, BRACKETED)
EUROBERT = Kind(_barred_byte_pairs, BARRED)
ROBERTA = Kind(_byte_pairs, ANGLED)
ALBERT = Kind(_albert, MIXED)
DEBERTA = Kind(_deberta, BRACKETED)
XLM_ROBERTA = Kind(_xlm_roberta, ANGLED)
CAMEMBERT = Kind(_camembert, ANGLED)
