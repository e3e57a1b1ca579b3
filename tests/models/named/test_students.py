"""Every preset of every family: its shape, what is copied, and that stock transformers loads it."""

import pytest
import torch

from biosqueeze.errors import UsageError
from biosqueeze.model_facts import count_by_part, tensor_shapes
from biosqueeze.models.attention_pattern import attention_period
from biosqueeze.models.count import count_model, count_parts, parameters_of
from biosqueeze.models.cuts.depth import shallow_config
from biosqueeze.models.families import family_of, longest_input
from biosqueeze.models.loading.load import load_config, load_model
from biosqueeze.models.named.presets import PRESETS, find_preset
from biosqueeze.models.named.students import build_student, encoder_parameters, plan_student, published_config
from tests import pico
from tests.layouts import edit_json, opened

EXPECTED = {"distil", "compact", "tiny", "mobile", "bioformer-8l", "bioformer-16l", "biolm-base"}
EXPECTED |= {"minilm-l12", "minilm-l6", "minilm-l3", "bert-tiny", "bert-mini", "bert-small", "bert-medium"}
EXPECTED |= {"electra-small", "electra-base", "modernbert-17m", "modernbert-32m", "modernbert-68m"}
# Each way to build a student, once: the sizes of a shape make no difference in code.
KINDS = ("distil", "compact", "tiny", "bioformer-8l", "mobile", "electra-small", "modernbert-17m")


@pytest.fixture
def small_presets(monkeypatch):
    """The presets with a sixteenth of their width, so that all families are fast."""
    from dataclasses import replace

    from biosqueeze.models.named import presets

    def shrunk(row):
        if row.shape is None:
            return row
        shape = row.shape
        size, embedding = 4 * shape.heads, shape.embedding and shape.embedding // 16
        sizes = {"hidden": size, "ffn": shape.ffn // 16, "layers": min(shape.layers, 8), "embedding": embedding}
        return replace(row, shape=replace(shape, **sizes, positions=min(256, shape.positions // 4)))

    rows = {name: shrunk(row) for name, row in PRESETS.items()}
    monkeypatch.setattr(presets, "PRESETS", rows)
    return rows


def test_presets_are_complete_and_consistent():
    assert set(PRESETS) >= EXPECTED
    for name, row in PRESETS.items():
        assert row.name == name and row.source and row.summary
        assert bool(row.kept_layers) != bool(row.shape)


def test_unknown_student_names_the_nearest():
    with pytest.raises(UsageError, match="Did you mean 'bert-small'"):
        find_preset("bert-smal")


def test_students_of_an_albert_with_several_groups_are_refused():
    config = pico.config_of("albert", 100)
    config.num_hidden_groups = 2
    with pytest.raises(UsageError, match=r"^a student with every-other layers of the teacher cannot be made of"):
        plan_student(config, find_preset("distil"))


@pytest.mark.parametrize("preset", KINDS)
def test_every_preset_of_every_family(pico_any, small_presets, preset, tmp_path):
    teacher, row = opened(pico_any), small_presets[preset]
    if row.shape and not row.own_family and teacher.config["model_type"] == "mobilebert":
        with pytest.raises(UsageError, match=r"bottleneck.*distil, compact, mobile"):
            build_student(teacher, preset, seed=0)
        return
    student = build_student(teacher, preset, seed=0)
    config = student.model.config
    assert config.model_type == (row.own_family or teacher.config["model_type"])
    if config.model_type == teacher.config["model_type"]:
        assert type(student.model).__name__ == teacher.config["architectures"][0]
    if row.kept_layers:
        assert (
            student.layers in ({(0, 1)} if config.model_type == "albert" else {(0, 2), (1, 3)})
            and config.hidden_size == pico.HIDDEN
        )
    else:
        assert student.layers is None
        shape = row.shape
        assert (config.num_hidden_layers, config.hidden_size) == (shape.layers, shape.hidden)
        assert (config.num_attention_heads, getattr(config, family_of(config).ffn_key)) == (shape.heads, shape.ffn)
    planned = plan_student(load_config(teacher), row)
    assert count_parts(planned, type(student.model).__name__) == count_model(student.model)
    student.model.save_pretrained(tmp_path)
    again, info = type(student.model).from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    limit = row.shape.positions if row.shape and (row.own_family or row.own_positions) else pico.POSITIONS
    assert student.tokenizer.model_max_length == min(limit, longest_input(config))
    longest = min(student.tokenizer.model_max_length, 512)
    batch = student.tokenizer(["gene " * longest], truncation=True, max_length=longest, return_tensors="pt")
    assert batch["input_ids"].shape[1] == longest
    assert torch.allclose(again.eval()(**batch)[0], student.model(**batch)[0], atol=1e-6)


@pytest.mark.parametrize("preset", PRESETS)
def test_sizes_are_within_2_percent_of_the_published(preset):
    row = PRESETS[preset]
    counted = encoder_parameters(published_config(row)) / 1e6
    assert counted == pytest.approx(row.millions, rel=0.02)


@pytest.mark.parametrize(("preset", "layers"), [("distil", (0, 2)), ("compact", (1, 3))])
def test_layers_embeddings_and_head_are_copied(pico_bert, preset, layers):
    teacher = load_model(opened(pico_bert)).model
    student = build_student(opened(pico_bert), preset, seed=0)
    assert student.layers == layers and str(layers[1]) in student.summary
    old, new = teacher.state_dict(), student.model.state_dict()
    for name, tensor in new.items():
        for place, layer in reversed(list(enumerate(layers))):
            name = name.replace(f"layer.{place}.", f"layer.old{layer}.")
        assert torch.equal(tensor, old[name.replace("old", "")])


def test_random_weights_depend_on_the_seed(pico_bert, small_presets):
    def weight(seed):
        return build_student(opened(pico_bert), "tiny", seed).model.bert.encoder.layer[0].output.dense.weight

    assert torch.equal(weight(1), weight(1))
    assert not torch.equal(weight(1), weight(2))


def test_embeddings_and_head_of_the_same_width_are_copied(pico_bert, small_presets):
    student = build_student(opened(pico_bert), "bioformer-8l", seed=0)  # small preset: 32 wide, 128 positions
    teacher = load_model(opened(pico_bert)).model
    assert torch.equal(student.model.bert.embeddings.LayerNorm.weight, teacher.bert.embeddings.LayerNorm.weight)
    assert torch.equal(student.model.get_input_embeddings().weight, teacher.get_input_embeddings().weight)
    assert torch.equal(student.model.cls.predictions.bias, teacher.cls.predictions.bias)
    assert "embeddings, head" in student.summary


def test_more_positions_than_the_teacher_has(pico_bert, monkeypatch):
    from dataclasses import replace

    from biosqueeze.models.named import presets

    row = PRESETS["bioformer-16l"]
    row = replace(row, shape=replace(row.shape, layers=2, hidden=32, heads=4, ffn=16, positions=200))
    monkeypatch.setattr(presets, "PRESETS", {"long": row})
    student = build_student(opened(pico_bert), "long", seed=0)
    old = load_model(opened(pico_bert)).model.bert.embeddings.position_embeddings.weight
    new = student.model.bert.embeddings.position_embeddings.weight
    assert new.shape[0] == 200 and torch.equal(new[: pico.POSITIONS], old)
    assert student.tokenizer.model_max_length == 200


@pytest.mark.parametrize("family", ["bert", "deberta-v2"])
def test_students_keep_the_limit_of_the_tokenizer(tmp_path, small_presets, family):
    path = pico.save(family, tmp_path / "model")
    edit_json(path / "tokenizer_config.json", model_max_length=64)
    for name, limit in (("tiny", 64), ("distil", 64), ("bioformer-8l", pico.POSITIONS)):
        assert build_student(opened(path), name, seed=0).tokenizer.model_max_length == limit, name


def test_other_widths_copy_nothing(pico_bert, small_presets):
    student, other = (build_student(opened(pico_bert), "tiny", seed=seed) for seed in (0, 1))
    assert "32 wide" in student.summary
    pairs = zip(student.model.parameters(), other.model.parameters(), strict=True)
    assert not any(torch.equal(first, second) for first, second in pairs if first.dim() > 1)  # all matrices are random


def test_narrow_electra_embedding_is_copied(pico_electra, small_presets):
    student = build_student(opened(pico_electra), "tiny", seed=0).model
    assert student.config.embedding_size == pico.HIDDEN // 2
    teacher = load_model(opened(pico_electra)).model
    assert torch.equal(student.get_input_embeddings().weight, teacher.get_input_embeddings().weight)


def test_task_head_keeps_its_labels(pico_ner, small_presets):
    student = build_student(opened(pico_ner), "tiny", seed=0)
    assert type(student.model).__name__ == "BertForTokenClassification"
    assert tuple(student.model.config.id2label.values()) == pico.LABELS
    assert student.model.classifier.weight.shape == (3, 48)


def test_head_the_teacher_lacks_is_random(tmp_path, small_presets):
    teacher = opened(pico.save("bert", tmp_path / "base", head="base"))
    student = build_student(teacher, "bioformer-8l", seed=0, head="mlm")
    assert type(student.model).__name__ == "BertForMaskedLM"
    assert "head" not in student.summary.split("tokenizer")[1]


@pytest.mark.parametrize(("family", "head"), [(f, h) for f in pico.FAMILIES for h in pico.HEADS_OF[f]])
def test_counting_from_the_config(tmp_path, family, head):
    checkpoint = opened(pico.save(family, tmp_path / "model", head=head))
    model = load_model(checkpoint).model
    assert parameters_of(checkpoint) == sum(p.numel() for p in model.parameters())
    (checkpoint.path / "model.safetensors").unlink()
    assert parameters_of(checkpoint) == sum(p.numel() for p in model.parameters())


def test_counting_with_another_head(pico_bert):
    loaded = load_model(opened(pico_bert), "token-classification", labels=("O", "B-A", "I-A", "B-B", "I-B"))
    counted = parameters_of(opened(pico_bert), head="token-classification", labels=5)
    assert counted == sum(p.numel() for p in loaded.model.parameters())


def test_parts_add_up(pico_any):
    model = load_model(opened(pico_any)).model
    counts = count_model(model)
    total = counts.pop("total")
    assert sum(counts.values()) == total == sum(p.numel() for p in model.parameters()) and all(counts.values())


@pytest.mark.parametrize(("family", "head"), [(f, h) for f in pico.FAMILIES for h in pico.HEADS_OF[f]])
def test_parts_are_those_of_the_saved_tensors(tmp_path, family, head):
    checkpoint = opened(pico.save(family, tmp_path / "model", head=head))
    saved = count_by_part(tensor_shapes(checkpoint.path / "model.safetensors"), checkpoint.config)
    assert count_model(load_model(checkpoint).model) == saved


def test_heads_are_none_of_an_encoders_layers():
    for family in pico.FAMILIES:
        encoder = pico.model_of(family, 100).base_model
        pooler = getattr(encoder, "pooler", None) or torch.nn.Identity()
        assert count_model(encoder)["head"] == sum(p.numel() for p in pooler.parameters()), family


@pytest.mark.parametrize("kept", [(0, 1, 2, 3), (0, 3), (0, 2, 3), (1, 2), (0, 1, 2, 4)])
def test_global_layers_of_a_student_have_a_period(kept):
    config = pico.config_of("modernbert", 100)
    config.layer_types = ["full_attention" if layer % 3 == 0 else "sliding_attention" for layer in range(6)]
    config.num_hidden_layers = 6
    teacher = shallow_config(config, kept)
    student = plan_student(teacher, PRESETS["bert-medium"])
    period = attention_period(student.layer_types)
    assert period == attention_period(teacher.layer_types) or not attention_period(teacher.layer_types)
    assert student.to_dict()["global_attn_every_n_layers"] == period and len(student.layer_types) == 8
