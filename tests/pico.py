"""Encoders of a few thousand weights, built in code: 4 layers x 32, 4 heads, ffn 64, saved as Hub folders.

    path = pico.save("bert", tmp_path / "teacher")                                  # cased, with its MLM head
    path = pico.save("roberta", tmp_path / "ner", head="token-classification", labels=("O", "B-X", "I-X"))

Biases and LayerNorm scales are random too: a surgery that forgets one of them must show.
"""

import itertools
import random
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

FAMILIES = ("bert", "roberta", "electra", "distilbert", "albert", "mobilebert")
LAYERS, HIDDEN, HEADS, FFN, POSITIONS = 4, 32, 4, 64, 128
LABELS = ("O", "B-Disease", "I-Disease")

_GLUE = tuple("the of and in with a to was is for patients cells gene protein mutation treatment".split())  # noqa: SIM905
_SYLLABLES = tuple("car ci no ma neu ro pa thy hep ti tis fib ros gly co lin".split())  # noqa: SIM905
_SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

_CLASSES = {
    ("bert", "mlm"): "BertForMaskedLM",
    ("bert", "base"): "BertModel",
    ("bert", "token-classification"): "BertForTokenClassification",
    ("bert", "sequence-classification"): "BertForSequenceClassification",
    ("bert", "question-answering"): "BertForQuestionAnswering",
    ("roberta", "mlm"): "RobertaForMaskedLM",
    ("roberta", "base"): "RobertaModel",
    ("roberta", "token-classification"): "RobertaForTokenClassification",
    ("roberta", "sequence-classification"): "RobertaForSequenceClassification",
    ("roberta", "question-answering"): "RobertaForQuestionAnswering",
    ("electra", "discriminator"): "ElectraForPreTraining",
    ("electra", "mlm"): "ElectraForMaskedLM",
    ("electra", "base"): "ElectraModel",
    ("electra", "token-classification"): "ElectraForTokenClassification",
    ("electra", "sequence-classification"): "ElectraForSequenceClassification",
    ("electra", "question-answering"): "ElectraForQuestionAnswering",
    ("distilbert", "mlm"): "DistilBertForMaskedLM",
    ("distilbert", "base"): "DistilBertModel",
    ("distilbert", "token-classification"): "DistilBertForTokenClassification",
    ("distilbert", "sequence-classification"): "DistilBertForSequenceClassification",
    ("distilbert", "question-answering"): "DistilBertForQuestionAnswering",
    ("albert", "mlm"): "AlbertForMaskedLM",
    ("albert", "base"): "AlbertModel",
    ("albert", "token-classification"): "AlbertForTokenClassification",
    ("albert", "sequence-classification"): "AlbertForSequenceClassification",
    ("albert", "question-answering"): "AlbertForQuestionAnswering",
    ("mobilebert", "mlm"): "MobileBertForMaskedLM",
    ("mobilebert", "base"): "MobileBertModel",
    ("mobilebert", "token-classification"): "MobileBertForTokenClassification",
    ("mobilebert", "sequence-classification"): "MobileBertForSequenceClassification",
    ("mobilebert", "question-answering"): "MobileBertForQuestionAnswering",
}
_NARROW_EMBEDDINGS = {
    "electra": transformers.ElectraConfig,
    "albert": transformers.AlbertConfig,
    "mobilebert": transformers.MobileBertConfig,
}
HEADS_OF = {family: tuple(h for f, h in _CLASSES if f == family) for family in FAMILIES}


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


def wordpieces(cased: bool) -> tuple[str, ...]:
    """A WordPiece vocabulary that spells every ASCII word: characters, their continuations, the words."""
    letters = [chr(c) for c in range(33, 127) if cased or not chr(c).isupper()]
    capitalised = [w.capitalize() for w in words()[:60]] + ["BRCA", "TP"] if cased else []
    continued = [f"##{letter}" for letter in letters if letter.isalnum()] + [f"##{s}" for s in _SYLLABLES]
    return tuple(dict.fromkeys([*_SPECIALS, *letters, *continued, *words(), *capitalised]))


@cache
def _byte_pairs() -> str:
    """A byte-level BPE tokenizer with RoBERTa's special tokens, as JSON (training it once is enough)."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        show_progress=False,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(sentences(200, seed=1), trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return tokenizer.to_str()


@cache
def _unigrams(cased: bool) -> str:
    """A SentencePiece-like tokenizer with ALBERT's special tokens, as JSON."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC()] if cased else [normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=500,
        show_progress=False,
        special_tokens=["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"],
        unk_token="<unk>",
        initial_alphabet=[chr(c) for c in range(33, 127) if cased or not chr(c).isupper()],
    )
    tokenizer.train_from_iterator(sentences(200, seed=1), trainer)
    frame = [("[CLS]", 2), ("[SEP]", 3)]
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", frame)
    return tokenizer.to_str()


def tokenizer_of(family: str, cased: bool = True) -> transformers.PreTrainedTokenizerFast:
    """The family's fast tokenizer over the invented words."""
    if family == "roberta":
        return transformers.PreTrainedTokenizerFast(
            tokenizer_object=Tokenizer.from_str(_byte_pairs()),
            bos_token="<s>",
            eos_token="</s>",
            cls_token="<s>",
            sep_token="</s>",
            unk_token="<unk>",
            pad_token="<pad>",
            mask_token="<mask>",
            model_max_length=POSITIONS,
            model_input_names=["input_ids", "attention_mask"],
        )
    if family == "albert":
        return transformers.PreTrainedTokenizerFast(
            tokenizer_object=Tokenizer.from_str(_unigrams(cased)),
            cls_token="[CLS]",
            sep_token="[SEP]",
            unk_token="<unk>",
            pad_token="<pad>",
            mask_token="[MASK]",
            model_max_length=POSITIONS,
            model_input_names=["input_ids", "attention_mask", "token_type_ids"],
        )
    vocabulary = {piece: i for i, piece in enumerate(wordpieces(cased))}
    core = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    core.normalizer = normalizers.BertNormalizer(lowercase=not cased)
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    core.decoder = decoders.WordPiece(prefix="##")
    core.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    inputs = ["input_ids", "attention_mask"] + ([] if family == "distilbert" else ["token_type_ids"])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=core,
        unk_token="[UNK]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        mask_token="[MASK]",
        model_max_length=POSITIONS,
        model_input_names=inputs,
    )


def config_of(family: str, vocab_size: int, labels: Sequence[str] = LABELS) -> transformers.PreTrainedConfig:
    """The family's config in pico size; embeddings of ELECTRA, ALBERT and MobileBERT are narrower than the layers."""
    names = dict(enumerate(labels))
    common = {
        "vocab_size": vocab_size,
        "id2label": names,
        "label2id": {label: i for i, label in names.items()},
        "initializer_range": 0.1,
    }
    if family == "distilbert":
        return transformers.DistilBertConfig(
            dim=HIDDEN,
            n_layers=LAYERS,
            n_heads=HEADS,
            hidden_dim=FFN,
            max_position_embeddings=POSITIONS,
            **common,
        )
    shape = {
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "intermediate_size": FFN,
    }
    if family == "roberta":
        positions = POSITIONS + 2  # RoBERTa counts positions from padding_idx + 1
        return transformers.RobertaConfig(max_position_embeddings=positions, type_vocab_size=1, **shape, **common)
    if family in _NARROW_EMBEDDINGS:
        build = _NARROW_EMBEDDINGS[family]
        bottleneck = {"intra_bottleneck_size": HIDDEN // 2} if family == "mobilebert" else {}
        return build(max_position_embeddings=POSITIONS, embedding_size=HIDDEN // 2, **bottleneck, **shape, **common)
    return transformers.BertConfig(max_position_embeddings=POSITIONS, **shape, **common)


def default_head(family: str) -> str:
    """What the family is published with: ELECTRA as a discriminator, the others with their MLM head."""
    return "discriminator" if family == "electra" else "mlm"


def model_of(
    family: str, vocab_size: int, head: str | None = None, labels: Sequence[str] = LABELS, seed: int = 0
) -> transformers.PreTrainedModel:
    """A randomly initialised pico model in eval mode, biases and LayerNorm scales random too."""
    name = _CLASSES[family, head or default_head(family)]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = config_of(family, vocab_size, labels)
        config.architectures = [name]
        if head == "question-answering":
            config.num_labels = 2  # start and end
        model = getattr(transformers, name)(config)
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.data += 0.1 * torch.randn_like(parameter)
    return model.eval()


def save(
    family: str,
    path: Path,
    head: str | None = None,
    *,
    cased: bool = True,
    labels: Sequence[str] = LABELS,
    seed: int = 0,
) -> Path:
    """Write a pico checkpoint as stock transformers would: config.json, model.safetensors, tokenizer.json."""
    tokenizer = tokenizer_of(family, cased)
    model = model_of(family, len(tokenizer), head, labels, seed)
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def padded_batch(
    model: transformers.PreTrainedModel, rows: int = 3, length: int = 17, seed: int = 0
) -> dict[str, torch.Tensor]:
    """Random ids with every row but the first padded: (rows, length)."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, model.config.vocab_size, (rows, length), generator=generator)
    mask = torch.ones_like(ids)
    for row in range(1, rows):
        mask[row, length - 3 * row :] = 0
    ids = ids.masked_fill(mask == 0, model.config.pad_token_id)
    return {"input_ids": ids, "attention_mask": mask}
