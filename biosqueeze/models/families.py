"""Encoder families: the names of their modules, tensors and config keys, one row each. Torch-free."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.models.unsupported import unsupported_message

NO_LIMIT = int(1e30)
"""transformers' number of tokens for a tokenizer without a longest input."""

# Heads by the ending of the transformers class; "ForPreTraining" is a family's own pretraining head.
_ENDINGS = {
    "mlm": "ForMaskedLM",
    "token-classification": "ForTokenClassification",
    "sequence-classification": "ForSequenceClassification",
    "question-answering": "ForQuestionAnswering",
    "pretraining": "ForPreTraining",
    "base": "Model",
}


@dataclass(frozen=True)
class Family:
    """Names of one family: paths are relative to the base model, or to one layer."""

    name: str
    """`model_type` in config.json."""
    classes: str
    """Prefix of the family's transformers classes."""
    heads: tuple[tuple[str, str], ...]
    """(prefix of a tensor's name, head): the first that occurs in a checkpoint determines its head."""
    mlm_head: tuple[str, ...] = ("lm_head",)
    """Modules that are applied in turn to the last hidden states, and give the logits over the vocabulary."""
    prefix: str = ""
    """Prefix of the trunk's tensors in a checkpoint with a head, if it is not the name: `model` of ModernBERT."""
    layers: str = "encoder.layer"
    query: str = "attention.self.query"
    key: str = "attention.self.key"
    value: str = "attention.self.value"
    attention_output: str = "attention.output.dense"
    ffn_input: str = "intermediate.dense"
    ffn_output: str = "output.dense"
    ffn_gate: str = ""
    """Projection whose outputs are multiplied with those of `ffn_input`; `ffn_input` itself if its rows are both,
    halved."""
    input_norm: str = ""
    """Norm at a pre-norm layer's start: the residual stream is not normalised between layers, so hidden states are
    compared after the norm that reads them, the next layer's or `final_norm`."""
    final_norm: str = ""
    """Norm after the last pre-norm layer, as a path in the trunk."""
    layers_key: str = "num_hidden_layers"
    hidden_key: str = "hidden_size"
    other_hidden_keys: tuple[str, ...] = ()
    """More config keys that hold the hidden size."""
    heads_key: str = "num_attention_heads"
    ffn_key: str = "intermediate_size"
    head_count_attribute: str = "num_attention_heads"
    """Attribute of the attention module with its number of heads."""
    head_size_attribute: str = "attention_head_size"
    """Attribute of the attention module with the size of its heads."""
    kv_heads_key: str = ""
    """Config key with the number of key and value heads, if several query heads share one."""
    rotary: bool = False
    """Whether positions rotate queries and keys: there are no position embeddings, and the size of a head determines
    the frequencies."""
    first_position: int = 0
    """RoBERTa's first token has position padding_idx + 1, usually 2: the rows before are unused. See the function."""
    counts_from_padding: bool = False
    """Whether the first position follows `pad_token_id` of config.json; MPNet's is fixed."""
    takes_token_types: bool = True
    embedding_projection: str = ""
    """Linear layer that makes the hidden size of embeddings of another size, as a path in the trunk."""
    projects_unequal_alone: bool = False
    """Whether a stock model has it only where the two sizes differ."""
    shares_layers: bool = False
    """ALBERT runs the same weights at every depth; `layers` is then the path of its few layer groups."""
    extra_projections: tuple[str, ...] = ()
    """Longformer's queries, keys and values of tokens with global attention: they have the rows of the same heads."""
    in_windows: bool = False
    """Longformer pads inputs to whole windows, so hidden states are longer, and projects (length, batch, hidden)."""
    has_bottleneck: bool = False
    """MobileBERT's layers compute in a narrower size than their outputs, and each has several FFNs."""
    position_key: str = ""
    """Projection of relative positions that has the rows of the same heads as `key`; absent where the layer's config
    says that `key` projects them."""
    position_query: str = ""
    """See position_key."""
    attention_bias: str = ""
    """Method of the attention module that computes what relative positions add to the scores, if it has one."""
    shared_bias: str = ""
    """MPNet's relative attention bias, as a path in the trunk: an embedding with a column for each head, which all
    layers read, so that the same heads are cut in every layer."""
    supports_sdpa: bool = True
    """Whether stock transformers has the family's attention as SDPA; otherwise it is always eager."""
    supports_packing: bool = True
    """Whether texts packed into one row do not influence each other. MobileBERT's embeddings mix neighbouring tokens:
    even padding changes the last real token, if the checkpoint's embedding of the pad token is not zero. Stock DeBERTa
    multiplies the embeddings by the mask, which therefore cannot be one of pairs of tokens."""

    @property
    def supports_narrowing(self) -> bool:
        """Whether neurons, heads and hidden dimensions can be removed."""
        return not (self.shares_layers or self.has_bottleneck)

    @property
    def has_attention_bias(self) -> bool:
        """Whether attention scores are more than products of queries and keys, because of relative positions."""
        return bool(self.attention_bias or self.shared_bias)

    @property
    def keeps_head_size(self) -> bool:
        """Whether heads can be removed but not narrowed: their size is that of a rotation, or of two sets of heads."""
        return self.rotary or bool(self.extra_projections)

    @property
    def fuses_projections(self) -> bool:
        """Whether one linear layer has the rows of queries, keys and values, in this order."""
        return self.query == self.key

    @property
    def fuses_gate(self) -> bool:
        """Whether one linear layer has the rows of the FFN's input and of its gate, in this order."""
        return self.ffn_gate == self.ffn_input

    @property
    def attention(self) -> str:
        """Path of the module that splits the hidden size into heads."""
        return self.query.rpartition(".")[0]

    def architecture(self, head: str) -> str:
        """Return the transformers class with a head: "mlm" -> "BertForMaskedLM"."""
        return self.classes + _ENDINGS[head]

    def head_of(self, architecture: str) -> str | None:
        """Return the head of a transformers class of this family; None for a class of another family."""
        return next((head for head, ending in _ENDINGS.items() if architecture == self.classes + ending), None)

    def shape_changes(self, **sizes: int | None) -> dict[str, int]:
        """Return config keys and values for `layers`, `hidden`, `heads` and `ffn`; sizes that are None are left out."""
        keys = {name: getattr(self, f"{name}_key") for name in ("layers", "hidden", "ffn")}
        keys["heads"] = self.heads_key
        changes = {keys[name]: size for name, size in sizes.items() if size is not None}
        return changes | {key: changes[self.hidden_key] for key in self.other_hidden_keys if self.hidden_key in changes}


_CLASSIFIERS = (
    ("qa_outputs.", "question-answering"),
    ("classifier.out_proj.", "sequence-classification"),
    ("pre_classifier.", "sequence-classification"),
    ("classifier.", "token-classification"),
)

_ROBERTA = Family(
    name="roberta",
    classes="Roberta",
    heads=(("lm_head.", "mlm"), *_CLASSIFIERS),
    first_position=2,
    counts_from_padding=True,
    takes_token_types=False,
)

FAMILIES: Mapping[str, Family] = {
    family.name: family
    for family in (
        Family(
            name="bert",
            classes="Bert",
            heads=(("cls.predictions.", "mlm"), *_CLASSIFIERS),
            mlm_head=("cls.predictions",),
        ),
        _ROBERTA,
        replace(_ROBERTA, name="xlm-roberta", classes="XLMRoberta", prefix="roberta"),
        replace(_ROBERTA, name="camembert", classes="Camembert", prefix="roberta"),
        replace(
            _ROBERTA,
            name="longformer",
            classes="Longformer",
            extra_projections=tuple(f"attention.self.{part}_global" for part in ("query", "key", "value")),
            in_windows=True,
            head_count_attribute="num_heads",
            head_size_attribute="head_dim",
            supports_sdpa=False,
            supports_packing=False,
        ),
        replace(
            _ROBERTA,
            name="mpnet",
            classes="MPNet",
            query="attention.attn.q",
            key="attention.attn.k",
            value="attention.attn.v",
            attention_output="attention.attn.o",
            shared_bias="encoder.relative_attention_bias",
            counts_from_padding=False,
            supports_sdpa=False,
        ),
        Family(
            name="electra",
            classes="Electra",
            heads=(
                ("generator_predictions.", "mlm"),
                ("discriminator_predictions.", "pretraining"),
                *_CLASSIFIERS,
            ),
            mlm_head=("generator_predictions", "generator_lm_head"),
            embedding_projection="embeddings_project",
            projects_unequal_alone=True,
        ),
        Family(
            name="distilbert",
            classes="DistilBert",
            heads=(("vocab_transform.", "mlm"), *_CLASSIFIERS),
            mlm_head=("vocab_transform", "activation", "vocab_layer_norm", "vocab_projector"),
            layers="transformer.layer",
            query="attention.q_lin",
            key="attention.k_lin",
            value="attention.v_lin",
            attention_output="attention.out_lin",
            ffn_input="ffn.lin1",
            ffn_output="ffn.lin2",
            layers_key="n_layers",
            hidden_key="dim",
            heads_key="n_heads",
            ffn_key="hidden_dim",
            head_count_attribute="n_heads",
            takes_token_types=False,
        ),
        Family(
            name="albert",
            classes="Albert",
            heads=(("predictions.", "mlm"), *_CLASSIFIERS),
            mlm_head=("predictions",),
            embedding_projection="encoder.embedding_hidden_mapping_in",
            layers="encoder.albert_layer_groups",
            query="attention.query",
            key="attention.key",
            value="attention.value",
            attention_output="attention.dense",
            ffn_input="ffn",
            ffn_output="ffn_output",
            shares_layers=True,
        ),
        Family(
            name="mobilebert",
            classes="MobileBert",
            heads=(("cls.predictions.", "mlm"), *_CLASSIFIERS),
            mlm_head=("cls.predictions",),
            has_bottleneck=True,
            supports_packing=False,
        ),
        Family(
            name="modernbert",
            classes="ModernBert",
            prefix="model",
            heads=(("decoder.", "mlm"), ("classifier.", "token-classification"), ("head.", "mlm")),
            mlm_head=("head", "decoder"),
            layers="layers",
            query="attn.Wqkv",
            key="attn.Wqkv",
            value="attn.Wqkv",
            attention_output="attn.Wo",
            ffn_input="mlp.Wi",
            ffn_gate="mlp.Wi",
            ffn_output="mlp.Wo",
            input_norm="attn_norm",
            final_norm="final_norm",
            head_size_attribute="head_dim",
            rotary=True,
            takes_token_types=False,
        ),
        Family(
            name="deberta-v2",
            classes="DebertaV2",
            prefix="deberta",
            heads=(
                ("mask_predictions.", "base"),
                ("cls.predictions.", "mlm"),
                ("lm_predictions.", "mlm"),
                *_CLASSIFIERS,
            ),
            mlm_head=("cls.predictions",),
            query="attention.self.query_proj",
            key="attention.self.key_proj",
            value="attention.self.value_proj",
            position_key="attention.self.pos_key_proj",
            position_query="attention.self.pos_query_proj",
            other_hidden_keys=("pooler_hidden_size",),
            attention_bias="disentangled_attention_bias",
            supports_sdpa=False,
            supports_packing=False,
        ),
        Family(
            name="eurobert",
            classes="EuroBert",
            prefix="model",
            heads=(("lm_head.", "mlm"), ("dense.", "sequence-classification"), ("classifier.", "token-classification")),
            layers="layers",
            query="self_attn.q_proj",
            key="self_attn.k_proj",
            value="self_attn.v_proj",
            attention_output="self_attn.o_proj",
            ffn_input="mlp.up_proj",
            ffn_gate="mlp.gate_proj",
            ffn_output="mlp.down_proj",
            input_norm="input_layernorm",
            final_norm="norm",
            head_size_attribute="head_dim",
            kv_heads_key="num_key_value_heads",
            rotary=True,
            takes_token_types=False,
        ),
    )
}


def supported() -> str:
    """Return the names of the families, for messages."""
    return ", ".join(FAMILIES)


def family_of(config: Any) -> Family:
    """Return the family of a transformers config, or of a config.json with a `model_type`.

    Raises:
        SqueezeError: it is none of `FAMILIES`.
    """
    name = str(config.get("model_type") if isinstance(config, Mapping) else config.model_type)
    if name not in FAMILIES:
        raise SqueezeError(unsupported_message(name, FAMILIES))
    return FAMILIES[name]


def longest_input(config: Any) -> int:
    """Return the most tokens in a sequence, special ones included, by the number of positions; else `NO_LIMIT`.

    Args:
        config: transformers', or the content of config.json with a `model_type`.
    """
    if not _value(config, "position_biased_input", True):
        return NO_LIMIT  # DeBERTa without absolute positions: all distances beyond the last bucket share one embedding
    return int(_value(config, "max_position_embeddings", NO_LIMIT)) - first_position(config)


def first_position(config: Any) -> int:
    """Return the position of a text's first token: 0, or in RoBERTa's families the id of its padding and one.

    Args:
        config: see `longest_input`.
    """
    family = family_of(config)
    padding = _value(config, "pad_token_id", None) if family.counts_from_padding else None
    return family.first_position if padding is None else int(padding) + 1


def unprojected_hidden(config: Any) -> int | None:
    """Return the hidden size at which an ELECTRA would lose the projection of its embeddings; None if it has none."""
    embedding: int = getattr(config, "embedding_size", config.hidden_size)
    return embedding if embedding != config.hidden_size else None


def check_length(name: str, config: Any, length: int) -> None:
    """Check that a model takes sequences of a length.

    Args:
        name: of the checkpoint.
        config: see `longest_input`.
        length: in tokens.

    Raises:
        UsageError: it has fewer positions.
    """
    longest = longest_input(config)
    if length > longest:
        raise UsageError(f"--length {length} is more than the {longest} positions of {name}; give at most {longest}")


def takes_token_types(config: Any) -> bool:
    """Return whether a model reads `token_type_ids`: not if its family does not, or it has no embedding for them.

    Args:
        config: transformers', or the content of config.json with a `model_type`.
    """
    return family_of(config).takes_token_types and _value(config, "type_vocab_size", 2) > 0


def _value(config: Any, key: str, default: Any) -> Any:
    return config.get(key, default) if isinstance(config, Mapping) else getattr(config, key, default)
