"""Old and odd layouts of pico checkpoints."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers.convert_slow_tokenizer import import_protobuf

from biosqueeze.checkpoint import Checkpoint, open_checkpoint
from biosqueeze.models.loading.load import load_config
from tests import pico


def opened(path: Path) -> Checkpoint:
    return open_checkpoint(str(path))


def edit_json(path: Path, drop: tuple[str, ...] = (), **changes) -> None:
    content = json.loads(path.read_text())
    content = {key: value for key, value in content.items() if key not in drop} | changes
    path.write_text(json.dumps(content))


def to_bin(path: Path, tensors: dict[str, torch.Tensor], *, zipped: bool = True) -> None:
    """Replace the weights by a pytorch_model.bin."""
    (path / "model.safetensors").unlink(missing_ok=True)
    torch.save(tensors, path / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)


def sentencepiece(path: Path, content: bytes | None = None, **settings) -> Checkpoint:
    """The tokenizer of a pico ALBERT, DeBERTa, XLM-RoBERTa or CamemBERT in its first layout: a SentencePiece file."""
    core = json.loads((path / "tokenizer.json").read_text())
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        (path / name).unlink(missing_ok=True)
    family = load_config(opened(path)).model_type
    pieces = [tuple(piece) for piece in core["model"]["vocab"]]
    if family in ("xlm-roberta", "camembert"):  # fairseq's own pieces are not in the file
        first = [(piece, 0.0) for piece in ("<unk>", "<s>", "</s>")]
        pieces = first + pieces[{"xlm-roberta": 4, "camembert": 7}[family] :]
    proto = import_protobuf().ModelProto()
    for piece, score in pieces:
        kind = 2 if piece in ("<unk>", "[UNK]") else 3 if piece.startswith(("<", "[")) else 1
        proto.pieces.add(piece=piece, score=score, type=kind)
    proto.trainer_spec.model_type = proto.trainer_spec.UNIGRAM
    proto.trainer_spec.byte_fallback = any(piece == "<0x00>" for piece, _ in pieces)
    names = {"albert": "spiece.model", "deberta-v2": "spm.model"}
    name = names.get(family, "sentencepiece.bpe.model")
    (path / name).write_bytes(proto.SerializeToString() if content is None else content)
    if settings:
        (path / "tokenizer_config.json").write_text(json.dumps(settings))
    return opened(path)


def lay_out_biobert(root: Path) -> Path:
    """A Hub cache with dmis-lab/biobert-v1.1 as it is: an old .bin, a cased vocab.txt, a config that says nothing.

    Returns the pico model with the same weights as stock transformers would save it.
    """
    source = pico.save("bert", root / "source", head="base")
    tensors = {f"bert.{name}": tensor for name, tensor in load_file(source / "model.safetensors").items()}
    tensors = {n.replace("LayerNorm.weight", "LayerNorm.gamma"): t for n, t in tensors.items()}
    tensors = {n.replace("LayerNorm.bias", "LayerNorm.beta"): t for n, t in tensors.items()}
    tensors["bert.embeddings.position_ids"] = torch.arange(pico.POSITIONS)[None]
    tensors["cls.seq_relationship.weight"] = torch.zeros(2, pico.HIDDEN)
    tensors["cls.seq_relationship.bias"] = torch.zeros(2)
    model = root / "hub" / "models--dmis-lab--biobert-v1.1"
    snapshot = model / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text("0" * 40)
    to_bin(snapshot, tensors, zipped=False)
    config = json.loads((source / "config.json").read_text())
    kept = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    kept += ("max_position_embeddings", "type_vocab_size", "hidden_act", "initializer_range", "hidden_dropout_prob")
    (snapshot / "config.json").write_text(json.dumps({key: config[key] for key in kept}))
    (snapshot / "vocab.txt").write_text("\n".join(pico.wordpieces(cased=True)) + "\n")
    return source
