"""Encoders of other families that begin with the layers of all-MiniLM-L6-v2: the teachers of `cross_family.py`."""

import gzip
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import full_size
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor

from biosqueeze.checkpoint import open_checkpoint

Weights = dict[str, Tensor]
LAYERS, POSITIONS, MAX_LENGTH = 6, 512, 512
_SHAPE: dict[str, Any] = {
    "num_hidden_layers": LAYERS,
    "hidden_size": 384,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
}
_BERT_SPECIALS = {"[PAD]": "pad", "[UNK]": "unk", "[CLS]": "cls", "[SEP]": "sep", "[MASK]": "mask"}
_XLM_SPECIALS = {"<s>": "cls", "<pad>": "pad", "</s>": "sep", "<unk>": "unk", "<mask>": "mask"}
_RELATIVE_SCALE = 0.1  # of DeBERTa's relative positions, which MiniLM lacks: too small to disturb what was copied


def build(family: str, text: Path, size: int, out: Path) -> None:
    """Write an encoder of 6 x 384 with a tokenizer of its own.

    Attention and FFN are MiniLM's. A piece starts as the mean of the embeddings of MiniLM's pieces of its text.

    Args:
        family: a key of `FAMILIES`.
        text: gzipped text, on which the tokenizer is trained.
        size: pieces of the tokenizer.
        out: the directory.
    """
    source = open_checkpoint("demo:minilm").path
    minilm: Any = transformers.AutoModel.from_pretrained(source, dtype=torch.float32)
    pieces = transformers.AutoTokenizer.from_pretrained(source)
    trained, specials, configured = FAMILIES[family]
    core = trained(text, size)
    ids = {f"{role}_token_id": core.token_to_id(token) for token, role in specials.items() if role in _ID_ROLES}
    model, weights = configured(minilm.state_dict(), core.get_vocab_size(), ids)
    weights[_embeddings_of(model)] = _embeddings(core, specials, pieces, minilm.embeddings.word_embeddings.weight)
    missing, unexpected = model.load_state_dict(weights, strict=False)
    untouched = [name for name in missing if "rel_embeddings" not in name]
    if untouched or unexpected:
        raise RuntimeError(f"{family}: not copied {untouched}, unknown {unexpected}")
    model.save_pretrained(out)
    names = {f"{role}_token": token for token, role in specials.items()}
    inputs = ["input_ids", "attention_mask"]
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=core, model_max_length=MAX_LENGTH, model_input_names=inputs, **names
    ).save_pretrained(out)


_ID_ROLES = ("pad", "cls", "sep")


def _lines(path: Path) -> Iterator[str]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from (line.strip() for line in lines if line.strip())


def _unigrams(text: Path, size: int, specials: dict[str, str]) -> Tokenizer:
    core = Tokenizer(models.Unigram())
    core.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    core.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    core.decoder = decoders.Metaspace()
    unknown = next(token for token, role in specials.items() if role == "unk")
    trainer = trainers.UnigramTrainer(
        vocab_size=size, special_tokens=list(specials), unk_token=unknown, show_progress=False
    )
    core.train_from_iterator(_lines(text), trainer)
    return _framed(core, specials)


def _byte_pairs(text: Path, size: int) -> Tokenizer:
    core = Tokenizer(models.BPE())
    core.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(_BERT_SPECIALS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(_lines(text), trainer)
    return _framed(core, _BERT_SPECIALS)


def _framed(core: Tokenizer, specials: dict[str, str]) -> Tokenizer:
    first, last = (next(token for token, role in specials.items() if role == wanted) for wanted in ("cls", "sep"))
    frame = [(token, core.token_to_id(token)) for token in (first, last)]
    core.post_processor = processors.TemplateProcessing(f"{first} $A {last}", f"{first} $A {last} $B {last}", frame)
    return core


def _embeddings(core: Tokenizer, specials: dict[str, str], pieces: Any, known: Tensor) -> Tensor:
    """Return an embedding for each piece, (vocabulary, hidden)."""
    rows = torch.empty(core.get_vocab_size(), known.shape[1])
    for token, number in core.get_vocab().items():
        if token in specials:
            found = [getattr(pieces, f"{specials[token]}_token_id")]
        else:
            text = core.decoder.decode([token])
            starts_word = token[0] in "▁Ġ"
            inner = pieces.convert_tokens_to_ids(f"##{text}")
            is_inner = not starts_word and inner != pieces.unk_token_id
            found = [inner] if is_inner else pieces.encode(text.strip(), add_special_tokens=False)
        rows[number] = known[found or [pieces.unk_token_id]].mean(dim=0)
    return rows


def _embeddings_of(model: Any) -> str:
    weight = model.get_input_embeddings().weight
    names: Iterator[str] = (name for name, parameter in model.named_parameters() if parameter is weight)
    return next(names)


def _xlm_roberta(source: Weights, size: int, ids: dict[str, Any]) -> tuple[Any, Weights]:
    """XLM-RoBERTa's layers are BERT's; its first position has the number 2."""
    options: dict[str, Any] = {"type_vocab_size": 1, "max_position_embeddings": POSITIONS + 2, "layer_norm_eps": 1e-12}
    special: dict[str, Any] = {"bos_token_id": ids["cls_token_id"], "eos_token_id": ids["sep_token_id"]}
    config = transformers.XLMRobertaConfig(
        vocab_size=size, pad_token_id=ids["pad_token_id"], **_SHAPE, **options, **special
    )
    model = transformers.XLMRobertaModel(config, add_pooling_layer=False)
    weights = {name: tensor for name, tensor in source.items() if not name.startswith("pooler")}
    positions, types = "embeddings.position_embeddings.weight", "embeddings.token_type_embeddings.weight"
    first = source[positions][:1].expand(2, -1)
    weights[positions], weights[types] = torch.cat([first, source[positions]]), source[types][:1]
    return model, {name: tensor for name, tensor in weights.items() if not name.endswith("position_ids")}


_DEBERTA_NAMES = {
    "attention.self.query": "attention.self.query_proj",
    "attention.self.key": "attention.self.key_proj",
    "attention.self.value": "attention.self.value_proj",
}


def _deberta_v3(source: Weights, size: int, ids: dict[str, Any]) -> tuple[Any, Weights]:
    """DeBERTa-v3's layers are BERT's, with relative positions in place of absolute ones.

    Its products of queries and keys are divided by sqrt(3 x head size), 3 for the kinds of positions.
    """
    published = full_size.CONFIGS["deberta-v3-base"][1]
    sizes = {**_SHAPE, "max_position_embeddings": POSITIONS, "vocab_size": size, "layer_norm_eps": 1e-12}
    config = transformers.DebertaV2Config(**{**published, **sizes, "pad_token_id": ids["pad_token_id"]})
    model = transformers.DebertaV2Model(config)
    weights: Weights = {}
    for name, tensor in source.items():
        if name.startswith(("pooler", "embeddings.position", "embeddings.token_type")):
            continue
        renamed = name
        for old, new in _DEBERTA_NAMES.items():
            renamed = renamed.replace(old, new)
        weights[renamed] = tensor * math.sqrt(3) if "query_proj" in renamed else tensor
    weights["encoder.LayerNorm.weight"] = torch.full((384,), _RELATIVE_SCALE)
    weights["encoder.LayerNorm.bias"] = torch.zeros(384)
    return model, weights


def _modernbert(source: Weights, size: int, ids: dict[str, Any]) -> tuple[Any, Weights]:
    """ModernBERT with the biases that its config allows: then a gate of weight 0 and bias 1 makes its FFN that of BERT.

    Its norms stand before attention and FFN instead of behind them: each gets the weights of MiniLM's preceding one.
    Rotary positions replace absolute ones. So the layers are MiniLM's and the network is not.
    """
    special: dict[str, Any] = {"bos_token_id": ids["cls_token_id"], "eos_token_id": ids["sep_token_id"]}
    biases: dict[str, Any] = {"attention_bias": True, "mlp_bias": True, "norm_bias": True}
    config = transformers.ModernBertConfig(vocab_size=size, **_SHAPE, **biases, **ids, **special, norm_eps=1e-12)
    model = transformers.ModernBertModel(config)
    weights: Weights = {}
    before = "embeddings.LayerNorm"
    for layer in range(LAYERS):
        old, new = f"encoder.layer.{layer}", f"layers.{layer}"
        _copy_norm(source, before, weights, f"{new}.attn_norm" if layer else "embeddings.norm")
        _copy_norm(source, f"{old}.attention.output.LayerNorm", weights, f"{new}.mlp_norm")
        before = f"{old}.output.LayerNorm"
        for kind in ("weight", "bias"):
            maps = [source[f"{old}.attention.self.{part}.{kind}"] for part in ("query", "key", "value")]
            weights[f"{new}.attn.Wqkv.{kind}"] = torch.cat(maps)
            weights[f"{new}.attn.Wo.{kind}"] = source[f"{old}.attention.output.dense.{kind}"]
            up = source[f"{old}.intermediate.dense.{kind}"]
            gate = torch.zeros_like(up) if kind == "weight" else torch.ones_like(up)
            weights[f"{new}.mlp.Wi.{kind}"] = torch.cat([up, gate])
            weights[f"{new}.mlp.Wo.{kind}"] = source[f"{old}.output.dense.{kind}"]
    _copy_norm(source, before, weights, "final_norm")
    return model, weights


def _copy_norm(source: Weights, old: str, weights: Weights, new: str) -> None:
    for kind in ("weight", "bias"):
        weights[f"{new}.{kind}"] = source[f"{old}.{kind}"]


_DEBERTA_SPECIALS = {"[PAD]": "pad", "[CLS]": "cls", "[SEP]": "sep", "[UNK]": "unk", "[MASK]": "mask"}
# How the tokenizer is trained, its special tokens and their roles, and how the model is made.
FAMILIES: dict[str, tuple[Callable[[Path, int], Tokenizer], dict[str, str], Callable[..., tuple[Any, Weights]]]] = {
    "XLM-RoBERTa": (lambda text, size: _unigrams(text, size, _XLM_SPECIALS), _XLM_SPECIALS, _xlm_roberta),
    "DeBERTa-v3": (lambda text, size: _unigrams(text, size, _DEBERTA_SPECIALS), _DEBERTA_SPECIALS, _deberta_v3),
    "ModernBERT": (_byte_pairs, _BERT_SPECIALS, _modernbert),
}
