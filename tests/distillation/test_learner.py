"""Losses of the learner against direct computations from the models' outputs, on padded and packed batches."""

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from unittest import mock

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, cross_entropy, kl_div, log_softmax, mse_loss

from biosqueeze import registry
from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.data.output_types import OUTPUT_TYPES, TOKENS
from biosqueeze.distillation.learner import Distiller
from biosqueeze.distillation.losses.config import LossConfig, loss_windows
from biosqueeze.distillation.losses.presets import LOSS_PRESETS
from biosqueeze.distillation.teachers.sources import LiveTeacher, OutputSpec, mean_logits
from biosqueeze.models.custom_heads.load import with_cosine
from biosqueeze.models.cuts.width import Widths, narrow
from biosqueeze.models.dropout import set_dropout
from biosqueeze.models.hooks import HiddenStateHooks
from biosqueeze.models.layer_maps import layer_map
from biosqueeze.models.layers import encoder_layers
from biosqueeze.models.loading.load import load_model
from biosqueeze.models.output_tensors import tensors_of
from biosqueeze.training.chunked_loss import ChunkedTerms
from biosqueeze.training.encoder_layers import training_layers
from biosqueeze.training.options import TrainingOptions
from tests import pico

SAME = {"mlm": 2.0, "kl": 5.0, "cosine": 1.0}


def model_of(path, head: str = "mlm", attention: str = "eager", **changes):
    return load_model(open_checkpoint(str(path)), head, attention=attention, **changes).model


def output_spec(kind: str = "mlm", output_type: str = "tokens") -> OutputSpec:
    return OutputSpec(kind, OUTPUT_TYPES[output_type], logits=True)


def distiller(student, teacher, config: LossConfig) -> Distiller:
    live = LiveTeacher([teacher], config.output_spec, config.teacher_parts, temperature=config.temperature)
    return Distiller(student, live, config, teacher_width=teacher.config.hidden_size).eval()


def masked_batch(model) -> dict[str, Tensor]:
    batch = pico.padded_batch(model)
    batch = {name: batch[name] for name in ("input_ids", "attention_mask")}
    chosen = batch["attention_mask"].bool() & (torch.arange(batch["input_ids"].shape[1]) % 3 == 1)
    return {**batch, "labels": torch.where(chosen, (batch["input_ids"] * 7) % 50, -100)}


@pytest.fixture(scope="module")
def pair(pico_bert):
    return model_of(pico_bert, num_hidden_layers=2), model_of(pico_bert)


def model_outputs(model, batch: Mapping[str, Tensor]):
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    return model(**inputs, output_hidden_states=True, output_attentions=True)


@torch.no_grad()
def test_distilbert_losses_equal_direct_computation(pair) -> None:
    student, teacher = pair
    batch = masked_batch(teacher)
    losses = distiller(
        student, teacher, LossConfig(weights=SAME, output_spec=output_spec(), temperature=2.0, layer_map=((2, 4),))
    )(**batch)
    student_out, teacher_out = model_outputs(student, batch), model_outputs(teacher, batch)
    rows, real = batch["labels"] >= 0, batch["attention_mask"].bool()
    assert float(losses["mlm"]) == pytest.approx(
        float(cross_entropy(student_out.logits[rows], batch["labels"][rows])), 1e-5
    )
    soft = [log_softmax(one.logits[rows] / 2, dim=-1) for one in (student_out, teacher_out)]
    kl = kl_div(soft[0], soft[1], reduction="batchmean", log_target=True) * 4
    assert float(losses["kl"]) == pytest.approx(float(kl), 1e-4)
    cosine = 1 - cosine_similarity(student_out.hidden_states[-1][real], teacher_out.hidden_states[-1][real], dim=-1)
    assert float(losses["cosine"]) == pytest.approx(float(cosine.mean()), 1e-4)


@torch.no_grad()
def test_layer_pairs_and_their_weights(pair) -> None:
    student, teacher = copy.deepcopy(pair[0]), pair[1]
    student.bert.embeddings.LayerNorm.weight *= 1.5  # else the embeddings of both are equal
    batch = masked_batch(teacher)
    config = LossConfig(
        weights={"hidden": 1.0, "hidden-cosine": 1.0, "attention-kl": 1.0, "embedding": 1.0},
        output_spec=output_spec(),
        layer_map=layer_map("uniform", 2, 4),
        layer_weights=(1.0, 3.0),
    )
    losses = distiller(student, teacher, config)(**batch)
    student_out, teacher_out, real = (
        model_outputs(student, batch),
        model_outputs(teacher, batch),
        batch["attention_mask"].bool(),
    )
    hidden = [mse_loss(student_out.hidden_states[i][real], teacher_out.hidden_states[2 * i][real]) for i in (1, 2)]
    assert float(losses["hidden"]) == pytest.approx(float(hidden[0] + 3 * hidden[1]), 1e-4)
    assert float(losses["embedding"]) == pytest.approx(
        float(mse_loss(student_out.hidden_states[0][real], teacher_out.hidden_states[0][real])), 1e-4
    )
    cosines = [
        cosine_similarity(student_out.hidden_states[i][real], teacher_out.hidden_states[2 * i][real]) for i in (1, 2)
    ]
    angles = [float(1 - each.mean()) for each in cosines]
    assert float(losses["hidden-cosine"]) == pytest.approx(angles[0] + 3 * angles[1], 1e-4)
    kl = [_attention_kl(student_out.attentions[i], teacher_out.attentions[2 * i + 1], real) for i in (0, 1)]
    assert float(losses["attention-kl"]) == pytest.approx(float(kl[0] + 3 * kl[1]), 1e-3)


def test_attention_is_compared_with_the_heads_that_were_kept(pico_bert) -> None:
    teacher = model_of(pico_bert)
    student = narrow(teacher, Widths(heads=2)).model
    student.set_attn_implementation("eager")
    batch, kept = masked_batch(teacher), ((1, 3), (0, 2), (2, 3), (0, 3))
    config = LossConfig(
        weights={"attention-kl": 1.0},
        output_spec=output_spec(),
        layer_map=((2, 2), (4, 3)),
        teacher_heads=kept,
    )
    with torch.no_grad():
        losses = distiller(student, teacher, config)(**batch)
        own, other = (model_outputs(model, batch).attentions for model in (student, teacher))
    real = batch["attention_mask"].bool()
    expected = _attention_kl(own[1], other[1][:, [0, 2]], real) + _attention_kl(own[3], other[2][:, [0, 3]], real)
    assert float(losses["attention-kl"]) == pytest.approx(float(expected), 1e-3)


@torch.no_grad()
def test_local_attention_is_compared_in_its_window() -> None:
    """Compare with the maps that the models return, which are zero outside of the window of layers 2 and 3."""
    teacher, student = (pico.model_of("modernbert", 200, "mlm", seed=seed) for seed in (0, 1))
    for model in (teacher, student):
        model.set_attn_implementation("eager")
    batch, pairs = masked_batch(teacher), ((1, 1), (2, 2))
    windows = loss_windows(pairs, (student.config, teacher.config))
    assert windows == {(2, 2): 4}
    config = LossConfig(weights={"attention-kl": 1.0}, output_spec=output_spec(), layer_map=pairs, windows=windows)
    loss = distiller(student, teacher, config)(**batch)["attention-kl"]
    maps = [model_outputs(model, batch).attentions for model in (student, teacher)]
    kl = [_attention_kl(*(side[layer] for side in maps), batch["attention_mask"].bool()) for layer in (0, 1)]
    assert float(loss) == pytest.approx(float(sum(kl)), 1e-3)
    crossed = loss_windows(((1, 2), (2, 1), (1, 4)), (student.config, teacher.config))
    assert crossed == {(1, 2): 4, (2, 1): 4}


def _attention_kl(student_maps: Tensor, teacher_maps: Tensor, real: Tensor) -> Tensor:
    """Compute the mean divergence over real queries and heads, sequence by sequence."""
    total, queries = torch.zeros(()), 0
    for student, teacher, mask in zip(student_maps, teacher_maps, real, strict=True):
        length = int(mask.sum())
        student, teacher = (one[:, :length, :length].double() for one in (student, teacher))
        total = total + (teacher * (teacher.log() - student.log())).nan_to_num().sum() / student.shape[0]
        queries += length
    return total / queries


@pytest.mark.parametrize("preset", [name for name in LOSS_PRESETS if name != "task"])
def test_padding_contributes_nothing(preset: str, pair) -> None:
    student, teacher = pair
    batch = masked_batch(teacher)
    wide = {k: torch.nn.functional.pad(v, (0, 6), value=-100 if k == "labels" else 0) for k, v in batch.items()}
    config = LossConfig(
        weights=LOSS_PRESETS[preset].weights, output_spec=output_spec(), layer_map=layer_map("uniform", 2, 4)
    )
    learner = distiller(student, teacher, config)
    losses, padded = learner(**batch), learner(**wide)
    assert all(torch.allclose(losses[name], padded[name], atol=1e-5) for name in losses)
    assert learner.counts(batch) == learner.counts(wide)


@pytest.mark.parametrize("name", [n for n in registry.names("objectives") if n != "hard"])
def test_packed_texts_equal_padded_texts(name: str, pico_bert) -> None:
    """Compare texts in separate rows with all texts in one row."""
    student, teacher = model_of(pico_bert, attention="sdpa", num_hidden_layers=2), model_of(pico_bert, attention="sdpa")
    batch = masked_batch(teacher)
    lengths = batch["attention_mask"].sum(dim=1).tolist()
    row = {key: torch.cat([batch[key][i, :n] for i, n in enumerate(lengths)])[None] for key in batch}
    row["positions"] = torch.cat([torch.arange(n) for n in lengths])[None]
    row["segments"] = torch.cat([torch.full((n,), i + 1) for i, n in enumerate(lengths)])[None]
    config = LossConfig(weights={name: 1.0}, output_spec=output_spec(), layer_map=((1, 2), (2, 4)))
    learner = distiller(student, teacher, config)
    with torch.no_grad():
        packed, padded = learner(**row), learner(**batch)
    assert float(packed[name]) == pytest.approx(float(padded[name]), 1e-3, abs=1e-6)
    assert learner.counts(row) == learner.counts(batch)


def test_chunks_equal_whole(pair, monkeypatch: pytest.MonkeyPatch) -> None:
    student, teacher = pair
    batch = masked_batch(teacher)
    config = LossConfig(weights=SAME, output_spec=output_spec(), temperature=2.0, layer_map=((2, 4),))
    results = []
    for rows in (1000, 3):
        monkeypatch.setattr(ChunkedTerms, "__init__", _with_rows(rows))
        student.zero_grad()
        terms = distiller(student, teacher, config)(**batch)
        torch.stack([SAME[name] * term for name, term in terms.items()]).sum().backward()
        results.append([*(t.detach() for t in terms.values()), *(p.grad.clone() for p in student.parameters())])
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-6) for a, b in zip(*results, strict=True))


def _with_rows(rows: int):
    def init(self, sums, weights, _rows: int = rows) -> None:
        for name, value in (("sums", sums), ("weights", weights), ("rows", rows)):
            object.__setattr__(self, name, value)

    return init


@pytest.mark.parametrize("projection", ["shared", "per-layer"])
def test_narrow_student_is_projected(projection: str, pico_bert, tmp_path) -> None:
    from biosqueeze.models.named.students import build_student

    teacher = model_of(pico_bert)
    student = build_student(open_checkpoint(str(pico_bert)), "bert-mini", 0, head="mlm").model
    config = LossConfig(
        weights={"hidden": 1.0, "embedding": 1.0, "cosine": 1.0, "minilmv2": 1.0},
        output_spec=OutputSpec("mlm", TOKENS, logits=False),
        layer_map=layer_map("uniform", student.config.num_hidden_layers, 4),
        projection=projection,
    )
    learner = distiller(student, teacher, config)
    assert sorted(learner.projections) == (["shared"] if projection == "shared" else ["0", "1", "2", "3", "4"])
    losses = learner(**masked_batch(teacher))
    torch.stack(list(losses.values())).sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in learner.projections.parameters())


def test_projections_depend_on_the_seed_alone(pico_bert, pair) -> None:
    from biosqueeze.models.named.students import build_student

    student = build_student(open_checkpoint(str(pico_bert)), "bert-mini", 0, head="mlm").model
    config = LossConfig(weights={"hidden": 1.0}, output_spec=output_spec(), layer_map=((1, 1),))

    def drawn(seed: int, state: int) -> Tensor:
        torch.manual_seed(state)
        learner = Distiller(
            student, LiveTeacher([pair[1]], output_spec(), {}), config, teacher_width=pico.HIDDEN, seed=seed
        )
        return learner.projections["shared"].weight

    assert torch.equal(drawn(3, state=1), drawn(3, state=2))
    assert not torch.equal(drawn(3, state=1), drawn(4, state=1))


@pytest.mark.parametrize("output_type", ["tokens", "single", "multi", "score", "span"])
def test_every_head(output_type: str, pico_bert) -> None:
    head = {"tokens": "token-classification", "span": "question-answering"}.get(output_type, "sequence-classification")
    labels = {"score": ("score",), "span": None}.get(output_type, ("a", "b", "c"))
    student = model_of(pico_bert, head, labels=labels, seed=1, num_hidden_layers=2)
    teacher = model_of(pico_bert, head, labels=labels, seed=2)
    batch = pico.padded_batch(teacher)
    size = len(batch["input_ids"])
    lengths = batch["attention_mask"].sum(dim=1)
    batch |= {
        "tokens": {"labels": torch.where(batch["attention_mask"].bool(), batch["input_ids"] % 3, -100)},
        "single": {"labels": torch.tensor([-100, *[i % 3 for i in range(1, size)]])},
        "multi": {"targets": torch.rand(size, 3).round()},
        "score": {"targets": torch.rand(size)},
        "span": {"starts": lengths // 3, "ends": lengths // 2},
    }[output_type]
    config = LossConfig(weights={"kl": 1.0, "hard": 1.0}, output_spec=output_spec("task", output_type), temperature=2.0)
    learner = distiller(student, teacher, config)
    with torch.no_grad():
        losses = learner(**batch)
    wide = {k: torch.nn.functional.pad(v, (0, 5), value=-100 if k == "labels" else 0) if v.dim() > 1 and k != "targets"
            else v for k, v in batch.items()}  # fmt: skip
    padded = learner(**wide)
    assert all(torch.allclose(losses[n], padded[n], atol=1e-5) for n in losses)
    assert all(float(loss.detach()) > 0 for loss in losses.values())
    if output_type == "single":
        logits = student(**{n: batch[n] for n in ("input_ids", "attention_mask")}).logits
        expected = cross_entropy(logits[1:], batch["labels"][1:]).detach()
        assert float(losses["hard"].detach()) == pytest.approx(float(expected), 1e-4)
    same_model = distiller(teacher, teacher, config)(**batch)
    assert float(same_model["kl"]) == pytest.approx(0.0, abs=1e-6)


def test_several_teachers_are_averaged(pico_bert) -> None:
    teachers = [
        model_of(pico_bert, "token-classification", labels=("a", "b", "c"), seed=seed, classifier_dropout=0.0)
        for seed in (1, 2)
    ]
    spec = output_spec("task")
    live = LiveTeacher(teachers, spec, {}, weights=(3.0, 1.0), temperature=2.0)
    batch = pico.padded_batch(teachers[0])
    rows = live.outputs(batch).rows(slice(None))
    real = batch["attention_mask"].bool()
    expected = [model_outputs(model, batch).logits[real].double().div(2).softmax(dim=-1) for model in teachers]
    assert torch.allclose((rows.double() / 2).softmax(dim=-1), 0.75 * expected[0] + 0.25 * expected[1], atol=1e-6)


@pytest.mark.parametrize("output_type", ["multi", "score"])
def test_means_of_multi_label_and_scores(output_type: str) -> None:
    a, b = torch.randn(2, 5, 3)
    mean = mean_logits([a, b], [0.25, 0.75], 2.0, tensors_of(OUTPUT_TYPES[output_type]).row_kind)
    if output_type == "score":
        assert torch.allclose(mean, 0.25 * a + 0.75 * b, atol=1e-6)
    else:
        expected = 0.25 * (a / 2).sigmoid() + 0.75 * (b / 2).sigmoid()
        assert torch.allclose((mean / 2).sigmoid(), expected, atol=1e-6)


def test_dropout_is_set_for_training_only(pico_ner) -> None:
    student, teacher = (load_model(open_checkpoint(str(pico_ner)), "as-is").model for _ in range(2))
    set_dropout(student, 0.0)
    config = LossConfig(weights={"kl": 1.0}, output_spec=output_spec("task"))
    learner = distiller(student, teacher, config).train()
    batch = pico.padded_batch(student)
    batch["labels"] = batch["input_ids"] * 0 - 100
    assert float(learner(**batch)["kl"].detach()) == pytest.approx(0.0, abs=1e-6)
    assert student.config.hidden_dropout_prob == 0.1


@torch.no_grad()
def test_separately_encoded_texts_are_compared_text_by_text(pico_bert) -> None:
    student, teacher = (
        with_cosine(model_of(pico_bert, "base", num_hidden_layers=layers), 0.0, 4.0) for layers in (2, 4)
    )
    texts = [[[2, 9, 8, 3], [2, 7, 3]], [[2, 5, 3], [2, 4, 6, 7, 8, 3]]]
    ids, owners = torch.zeros(2, 9, dtype=torch.long), torch.zeros(2, 9, dtype=torch.long)
    for row, pair in enumerate(texts):
        joined = [(token, bit) for bit, text in enumerate(pair, 1) for token in text]
        ids[row, : len(joined)] = torch.tensor([token for token, _ in joined])
        owners[row, : len(joined)] = torch.tensor([bit for _, bit in joined])
    batch = {"input_ids": ids, "attention_mask": owners.clamp(max=1), "entities": owners, "targets": torch.ones(2)}
    config = LossConfig(
        weights={"kl": 1.0, "hidden": 1.0, "attention": 1.0},
        output_spec=output_spec("task", "score"),
        layer_map=((2, 4),),
    )
    learner = distiller(student, teacher, config)
    lengths = [len(text) for pair in texts for text in pair]
    assert learner.counts(batch) == {
        "kl": 2,
        "hidden": sum(lengths),
        "attention": sum(length**2 for length in lengths),
    }
    losses = learner(**batch)
    states = [
        [[model.encoder(input_ids=torch.tensor([text]))[0][0] for text in pair] for pair in texts]
        for model in (student, teacher)
    ]
    own, other = (
        torch.tensor([4 * float(cosine_similarity(*[text.mean(0) for text in pair], dim=0)) for pair in model])
        for model in states
    )
    assert float(losses["kl"]) == pytest.approx(float(mse_loss(own, other)), rel=1e-4, abs=1e-8)
    flat = [torch.cat([text for pair in model for text in pair]) for model in states]
    assert float(losses["hidden"]) == pytest.approx(float(mse_loss(*flat)), rel=1e-4)


@pytest.mark.parametrize("loss", ["attention-kl", "hidden"])
def test_classifiers_compute_only_the_first_token_last(loss: str) -> None:
    """The last layer of teacher and student, unless a loss compares its states; the losses are the same."""
    kind, layers = "sequence-classification", layer_map("uniform", 2, 4)
    with mock.patch.object(pico, "LAYERS", 2):
        student = pico.model_of("bert", 100, kind)
    teacher, batch = pico.model_of("bert", 100, kind, seed=1), pico.padded_batch(student)
    batch["labels"] = torch.arange(len(batch["input_ids"])) % len(pico.LABELS)
    config = LossConfig(weights={"kl": 1.0, loss: 1.0}, output_spec=output_spec("task", "single"), layer_map=layers)

    def losses(*, whole: bool) -> tuple[dict[str, float], list[int]]:
        with mock.patch.object(HiddenStateHooks, "captures_last_states", whole) if whole else nullcontext():
            learner = distiller(copy.deepcopy(student), copy.deepcopy(teacher), config)
            with training_layers(learner, TrainingOptions(), 1), lengths_of_layers(learner) as lengths:
                terms = learner(**batch)
        return {name: term.item() for name, term in terms.items()}, lengths

    length = batch["input_ids"].shape[1]
    expected, whole = losses(whole=True)
    found, lengths = losses(whole=False)
    assert found == pytest.approx(expected, rel=1e-5)
    assert whole == [length] * 6
    assert lengths == (whole if loss == "hidden" else [length] * 3 + [1] + [length, 1])


@contextmanager
def lengths_of_layers(learner: Distiller) -> Iterator[list[int]]:
    """The lengths that the layers of teacher and student return inside the block, in order."""
    lengths: list[int] = []
    for model in (*learner._teacher[0].models, learner.model):
        for layer in encoder_layers(model):
            layer.register_forward_hook(lambda _layer, _inputs, output: lengths.append(output.shape[1]))
    yield lengths
