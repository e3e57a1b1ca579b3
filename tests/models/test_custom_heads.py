"""The heads that stock transformers lacks, against sums and maxima over every path, and beside their encoders."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from scipy.special import logsumexp
from torch import Tensor
from transformers import AutoModel, AutoModelForTokenClassification

from biosqueeze.checkpoint import Checkpoint
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.model_facts import HEAD_FILE, HEAD_MARK
from biosqueeze.models import custom_heads as custom
from biosqueeze.models.crf import FASTER, Crf, Scores, negative_log_likelihood
from biosqueeze.models.custom_head_files import refuse_own_head
from biosqueeze.tasks import Formulation
from biosqueeze.tasks.encoding.crf_decoding import chances, viterbi
from tests import pico
from tests.manifests import write_manifest

LABELS = ("O", "B-Disease", "I-Disease")
RELATIONS = ("none", "inhibits")
TAGGERS, READERS = ("crf", "bilstm"), ("mentions", "entity-starts")
ALL = (*TAGGERS, *READERS)


def path_scores(emissions: np.ndarray, scores: dict[str, np.ndarray]) -> dict[tuple[int, ...], float]:
    """The score of every path of labels, one by one."""
    words, labels = emissions.shape
    made = {}
    for path in itertools.product(range(labels), repeat=words):
        total = scores["start"][path[0]] + scores["end"][path[-1]]
        total += sum(emissions[word, label] for word, label in enumerate(path))
        made[path] = total + sum(scores["transitions"][a, b] for a, b in itertools.pairwise(path))
    return made


def drawn(labels: int, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = {"transitions": (labels, labels), "start": labels, "end": labels}
    return {name: 2 * rng.standard_normal(shape) for name, shape in shapes.items()}


def as_tensors(scores: dict[str, np.ndarray]) -> Scores:
    return Scores(**{name: torch.from_numpy(values).requires_grad_() for name, values in scores.items()})


def ragged(labels: int, lengths: tuple[int, ...], seed: int) -> tuple[Tensor, Tensor]:
    """Emissions (batch, longest + 2, labels) and tags with gaps: -100 on the first, the last, and some in between."""
    rng = np.random.default_rng(seed)
    width = 2 * max(lengths) + 2
    tags = np.full((len(lengths), width), -100)
    for row, length in enumerate(lengths):
        places = np.sort(rng.choice(np.arange(1, width - 1), size=length, replace=False))
        tags[row, places] = rng.integers(0, labels, length)
    return torch.from_numpy(rng.standard_normal((*tags.shape, labels))), torch.from_numpy(tags)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 4), st.lists(st.integers(0, 4), min_size=1, max_size=4), st.integers(0, 1000))
def test_the_loss_is_minus_the_log_of_the_share_of_all_paths(labels: int, lengths: list[int], seed: int) -> None:
    scores = drawn(labels, seed)
    emissions, tags = ragged(labels, (*lengths, 1), seed)
    wanted = 0.0
    for row, true in zip(emissions.numpy(), tags.numpy(), strict=True):
        if (true >= 0).any():
            paths = path_scores(row[true >= 0], scores)
            wanted += logsumexp(list(paths.values())) - paths[tuple(true[true >= 0])]
    loss = negative_log_likelihood(emissions, tags, as_tensors(scores))
    assert loss.item() == pytest.approx(wanted / int((tags >= 0).sum()), rel=1e-12, abs=1e-12)


def test_its_gradient_is_right() -> None:
    emissions, tags = ragged(3, (4, 1, 3, 0), seed=1)
    scores = as_tensors(drawn(3, seed=1))
    emissions.requires_grad_()

    def loss(emissions: Tensor, *scores: Tensor) -> Tensor:
        return negative_log_likelihood(emissions, tags, Scores(*scores))

    assert torch.autograd.gradcheck(loss, (emissions, *scores))


@pytest.mark.parametrize("padding", [0.0, 1e30, float("inf"), float("nan")])
def test_what_has_no_label_contributes_exactly_nothing(padding: float) -> None:
    emissions, tags = ragged(3, (5, 2, 1), seed=2)
    kept = []
    for fill in (0.5, padding):
        filled = emissions.masked_fill((tags < 0).unsqueeze(-1), fill).requires_grad_()
        scores = as_tensors(drawn(3, seed=2))
        loss = negative_log_likelihood(filled, tags, scores)
        loss.backward()
        kept.append([loss.detach(), filled.grad, *(score.grad for score in scores)])
    assert all(torch.equal(one, other) for one, other in zip(*kept, strict=True))
    assert (kept[1][1][tags < 0] == 0).all()


def test_a_batch_is_the_sum_of_its_windows() -> None:
    emissions, tags = ragged(4, (6, 2, 4), seed=3)
    scores = as_tensors(drawn(4, seed=3))
    counts = (tags >= 0).sum(dim=1)
    alone = [negative_log_likelihood(emissions[i : i + 1], tags[i : i + 1], scores) for i in range(3)]
    together = negative_log_likelihood(emissions, tags, scores) * counts.sum()
    assert together.item() == pytest.approx(sum((n * loss).item() for n, loss in zip(counts, alone, strict=True)))


def test_windows_without_any_label_have_no_loss_and_a_gradient_of_zero() -> None:
    emissions, scores = torch.randn(2, 5, 3, requires_grad=True), as_tensors(drawn(3, seed=4))
    loss = negative_log_likelihood(emissions, torch.full((2, 5), -100), scores)
    loss.backward()
    assert loss.item() == 0
    assert not emissions.grad.any() and not scores.transitions.grad.any()


def test_without_training_a_crf_is_a_linear_tagger() -> None:
    emissions, tags = ragged(3, (4, 2), seed=5)
    emissions = emissions.float()
    softmax = torch.nn.functional.cross_entropy(emissions[tags >= 0], tags[tags >= 0])
    loss = Crf(3).loss(emissions, {"labels": tags})
    assert loss.item() == pytest.approx(softmax.item(), rel=1e-5)


def test_the_scores_of_a_crf_learn_faster_with_gradients_no_larger() -> None:
    crf, (emissions, tags) = Crf(3), ragged(3, (4, 2), seed=6)
    optimiser = torch.optim.AdamW(crf.parameters(), lr=1e-3, weight_decay=0.0)
    crf.loss(emissions.float(), {"labels": tags}).backward()
    direct = as_tensors({"transitions": np.zeros((3, 3)), "start": np.zeros(3), "end": np.zeros(3)})
    negative_log_likelihood(emissions, tags, direct).backward()
    assert torch.allclose(crf.transitions.grad.double(), direct.transitions.grad, atol=1e-6)
    optimiser.step()
    moved = crf.scores().transitions[direct.transitions.grad.abs() > 1e-3].abs()
    assert torch.allclose(moved, torch.full_like(moved, FASTER * 1e-3), rtol=1e-3)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4), st.integers(1, 5), st.integers(0, 1000))
def test_viterbi_finds_the_best_of_all_paths(labels: int, words: int, seed: int) -> None:
    emissions = np.random.default_rng(seed).standard_normal((words, labels)).astype(np.float32)
    scores = drawn(labels, seed)
    paths = path_scores(emissions.astype(np.float64), scores)
    found = tuple(viterbi(emissions, scores).tolist())
    assert paths[found] == pytest.approx(max(paths.values()), rel=1e-12)


def test_of_equal_paths_viterbi_takes_the_first() -> None:
    nothing = {"transitions": np.zeros((2, 2)), "start": np.zeros(2), "end": np.zeros(2)}
    assert viterbi(np.zeros((3, 2)), nothing).tolist() == [0, 0, 0]
    assert viterbi(np.zeros((0, 2)), nothing).tolist() == []


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 3), st.integers(1, 4), st.integers(0, 1000))
def test_chances_are_the_shares_of_the_paths_through_a_label(labels: int, words: int, seed: int) -> None:
    emissions, scores = np.random.default_rng(seed).standard_normal((words, labels)), drawn(labels, seed)
    paths = path_scores(emissions, scores)
    whole = logsumexp(list(paths.values()))
    wanted = np.zeros((words, labels))
    for path, score in paths.items():
        wanted[np.arange(words), path] += np.exp(score - whole)
    assert np.allclose(chances(emissions, scores), wanted, atol=1e-12)


def test_chances_of_no_words() -> None:
    assert chances(np.zeros((0, 3)), drawn(3, 0)).shape == (0, 3)


def made(source: Path, name: str, seed: int = 0) -> custom.HeadedEncoder:
    labels = LABELS if name in TAGGERS else RELATIONS
    return custom.new_headed(Checkpoint(source, source.name), name, labels, seed)


def unlike(model: custom.HeadedEncoder) -> custom.HeadedEncoder:
    """The model with every number of its head moved, so that what is lost on the way shows."""
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in model.head.parameters():
            parameter += torch.randn_like(parameter)
    return model


def batch_of(model: custom.HeadedEncoder) -> dict[str, Tensor]:
    batch = pico.padded_batch(model.encoder)
    if model.reads:
        entities = torch.zeros_like(batch["input_ids"])
        entities[:, 2:4], entities[:, 4], entities[:, 6:8] = 1, 3, 2
        batch["entities"] = entities * batch["attention_mask"]
    return batch


@pytest.mark.parametrize("name", ALL)
def test_what_is_saved_loads_as_it_was(name: str, pico_any: Path, tmp_path: Path) -> None:
    model = unlike(made(pico_any, name))
    model.save_pretrained(tmp_path)
    saved = Checkpoint(tmp_path, "saved")
    loaded = custom.load_headed(saved)
    assert saved.custom_head == name
    assert custom.task_head_in(saved) == custom._HEADS[name].task
    batch = batch_of(model)
    assert torch.equal(loaded(**batch).logits, model(**batch).logits)
    state, again = model.state_dict(), loaded.state_dict()
    assert list(state) == list(again) and all(torch.equal(state[key], again[key]) for key in state)


@pytest.mark.parametrize("name", ALL)
def test_the_encoder_beside_a_head_is_a_stock_model(name: str, pico_any: Path, tmp_path: Path) -> None:
    model = made(pico_any, name)
    model.save_pretrained(tmp_path)
    stock = AutoModelForTokenClassification if name == "crf" else AutoModel
    loaded, report = stock.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"]
    assert type(loaded) is type(model.encoder)
    batch = pico.padded_batch(model.encoder)
    assert torch.equal(loaded.eval()(**batch)[0], model.encoder(**batch)[0])
    assert tuple(loaded.config.id2label.values()) == (LABELS if name in TAGGERS else RELATIONS)


@pytest.mark.parametrize("name", ALL)
def test_padding_changes_no_logits(name: str, pico_bert: Path) -> None:
    model = unlike(made(pico_bert, name))
    batch = batch_of(model)
    together = model(**batch).logits
    for row, length in enumerate(batch["attention_mask"].sum(dim=1).tolist()):
        alone = model(**{key: values[row : row + 1, :length] for key, values in batch.items()}).logits[0]
        found = together[row, :length] if name in TAGGERS else together[row]
        assert torch.allclose(found, alone, atol=1e-5)


@pytest.mark.parametrize("name", ["bilstm", *READERS])
def test_a_head_reads_no_hidden_state_of_padding(name: str, pico_bert: Path) -> None:
    model = unlike(made(pico_bert, name))
    batch = batch_of(model)
    mask, entities = batch["attention_mask"], batch.get("entities")
    real = torch.randn(*mask.shape, pico.HIDDEN)
    other = torch.where(mask.bool().unsqueeze(-1), real, 1e6)
    outputs = [model.head(hidden, mask, entities) for hidden in (real, other)]
    if name in TAGGERS:
        outputs = [logits[mask.bool()] for logits in outputs]
    assert torch.equal(*outputs)


def test_the_bilstm_is_torchs_over_each_sentence_alone(pico_bert: Path) -> None:
    model = unlike(made(pico_bert, "bilstm"))
    head, batch = model.head, batch_of(model)
    assert (head.lstm.hidden_size, head.lstm.bidirectional, head.lstm.num_layers) == (pico.HIDDEN // 2, True, 1)
    plain = torch.nn.LSTM(pico.HIDDEN, pico.HIDDEN // 2, batch_first=True, bidirectional=True)
    plain.load_state_dict(head.lstm.state_dict())
    hidden = model.encoder(**batch)[0]
    logits = model(**batch).logits
    for row, length in enumerate(batch["attention_mask"].sum(dim=1).tolist()):
        states = plain(hidden[row, :length])[0]
        assert torch.allclose(logits[row, :length], head.classifier(states), atol=1e-6)


@pytest.mark.parametrize("name", READERS)
def test_a_relation_is_read_from_its_two_mentions(name: str, pico_bert: Path) -> None:
    model = unlike(made(pico_bert, name))
    batch = batch_of(model)
    hidden, logits = model.encoder(batch["input_ids"], batch["attention_mask"])[0], model(**batch).logits
    for row, entities in enumerate(batch["entities"]):
        pair = []
        for bit in (1, 2):
            places = [place for place, bits in enumerate(entities.tolist()) if bits & bit]
            chosen = places if name == "mentions" else places[:1]
            pair.append(torch.stack([hidden[row, place] for place in chosen]).max(dim=0).values)
        assert torch.allclose(logits[row], model.head.classifier(torch.cat(pair)), atol=1e-5)


@pytest.mark.parametrize("name", ["bilstm", *READERS])
def test_dropout_is_the_configs(name: str, pico_any: Path) -> None:
    config = custom.load_config(Checkpoint(pico_any, "source"))
    make = custom._HEADS[name].make
    if config.model_type == "distilbert":
        config.dropout, config.seq_classif_dropout = 0.21, 0.43
        assert make(config, 2).dropout.p == (0.21 if name == "bilstm" else 0.43)
        return
    if config.model_type == "albert":
        config.classifier_dropout_prob = 0.32
        assert make(config, 2).dropout.p == 0.32
        return
    config.hidden_dropout_prob = 0.21
    assert make(config, 2).dropout.p == 0.21
    config.classifier_dropout = 0.0
    assert make(config, 2).dropout.p == 0.0


@pytest.mark.parametrize("name", ["bilstm", *READERS])
def test_a_fresh_head_is_drawn_from_the_seed(name: str, pico_bert: Path) -> None:
    state = torch.get_rng_state()
    one, same, other = (made(pico_bert, name, seed).head.state_dict() for seed in (1, 1, 2))
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(one[key], same[key]) for key in one)
    assert not torch.equal(one["classifier.weight"], other["classifier.weight"])


@pytest.mark.parametrize("name", ALL)
def test_a_head_is_kept_for_the_same_labels_only(name: str, pico_bert: Path, tmp_path: Path) -> None:
    model = unlike(made(pico_bert, name))
    model.save_pretrained(tmp_path)
    labels = LABELS if name in TAGGERS else RELATIONS
    kept, fresh = (custom.new_headed(Checkpoint(tmp_path, "x"), name, ids, 0) for ids in (labels, labels[::-1]))
    assert all(torch.equal(value, kept.head.state_dict()[key]) for key, value in model.head.state_dict().items())
    assert any(not torch.equal(value, fresh.head.state_dict()[key]) for key, value in model.head.state_dict().items())


@pytest.mark.parametrize("name", ["bilstm", *READERS])
def test_every_weight_that_is_trained_gets_a_gradient(name: str, pico_any: Path) -> None:
    model = made(pico_any, name).train()
    batch = batch_of(model)
    if model.config.model_type in ("bert", "electra"):
        batch["token_type_ids"] = torch.zeros_like(batch["input_ids"])
    model(**batch).logits.sum().backward()
    assert [n for n, p in model.named_parameters() if p.requires_grad and p.grad is None] == []


@pytest.mark.parametrize("name", ALL)
def test_parameters_are_counted_without_weights(name: str, pico_any: Path) -> None:
    model = made(pico_any, name)
    counted = custom.count_headed(Checkpoint(pico_any, "x"), name, model.config.num_labels)
    assert counted == sum(parameter.numel() for parameter in model.parameters())


def test_decoding_parameters_are_those_of_the_file(pico_bert: Path, tmp_path: Path) -> None:
    model = unlike(made(pico_bert, "crf"))
    model.save_pretrained(tmp_path)
    held, stored = custom.decoding_parameters(model), custom.decoding_parameters(Checkpoint(tmp_path, "x"))
    assert {n: v.shape for n, v in held.items()} == {"transitions": (3, 3), "start": (3,), "end": (3,)}
    assert all(np.array_equal(held[name], stored[name]) for name in held)
    assert np.array_equal(held["start"], model.head.start.detach().numpy() * FASTER)
    for other in (made(pico_bert, "bilstm"), model.encoder, Checkpoint(pico_bert, "stock")):
        assert custom.decoding_parameters(other) == {}


@pytest.mark.parametrize(
    ("form", "name"),
    [
        (Formulation(), None),
        (Formulation(tagger="crf"), "crf"),
        (Formulation(tagger="bilstm", label_all_pieces=True), "bilstm"),
        (Formulation(representation="entity-starts"), "entity-starts"),
    ],
)
def test_which_head_a_formulation_asks_for(form: Formulation, name: str | None) -> None:
    assert custom.wanted_head(form) == name


def test_a_chain_of_sub_words_is_refused() -> None:
    with pytest.raises(UsageError, match="--label-all-pieces cannot go with it"):
        custom.wanted_head(Formulation(tagger="crf", label_all_pieces=True))


@pytest.mark.parametrize(("name", "flag"), [("bilstm", "--tagger linear"), ("mentions", "--representation cls")])
def test_a_stage_that_would_lose_the_head_says_so(name: str, flag: str, pico_bert: Path, tmp_path: Path) -> None:
    made(pico_bert, name).save_pretrained(tmp_path)
    with pytest.raises(SqueezeError, match=f"{name} head.*export cannot.*biosqueeze finetune x {flag}"):
        refuse_own_head(Checkpoint(tmp_path, "x"), "export", allowed=("crf",))
    refuse_own_head(Checkpoint(pico_bert, "stock"), "export")


def test_a_head_that_is_damaged_or_of_another_model(pico_bert: Path, tmp_path: Path) -> None:
    made(pico_bert, "crf").save_pretrained(tmp_path)
    file, saved = tmp_path / HEAD_FILE, Checkpoint(tmp_path, "x")
    tensors, whole = load_file(file), file.read_bytes()
    save_file({**tensors, "start": torch.zeros(7)}, file, {HEAD_MARK: "crf"})
    with pytest.raises(SqueezeError, match="does not fit the encoder and its 3 labels"):
        custom.load_headed(saved)
    with pytest.raises(SqueezeError, match="no CRF of 3 labels"):
        custom.decoding_parameters(saved)
    save_file(tensors, file, {HEAD_MARK: "quantum"})
    with pytest.raises(SqueezeError, match="'quantum', which this version does not know"):
        custom.load_headed(Checkpoint(tmp_path, "x"))
    file.write_bytes(whole[:-8])
    with pytest.raises(SqueezeError, match="damaged or cut short"):
        _ = Checkpoint(tmp_path, "x").custom_head
    with pytest.raises(SqueezeError, match="damaged or cut short"):
        custom.load_headed(saved)


def test_a_crf_that_has_gone_is_not_decoded_without(pico_ner: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((pico_ner / "config.json").read_text())
    write_manifest(tmp_path, task={"name": "ner", "formulation": {"tagger": "crf"}})
    with pytest.raises(SqueezeError, match=r"fine-tuned with a CRF, which should be in head\.safetensors"):
        custom.decoding_parameters(Checkpoint(tmp_path, "x"))


def test_a_foreign_file_of_that_name_is_no_head(pico_bert: Path, tmp_path: Path) -> None:
    made(pico_bert, "bilstm").save_pretrained(tmp_path)
    save_file({"something": torch.zeros(2)}, tmp_path / HEAD_FILE)
    saved = Checkpoint(tmp_path, "x")
    assert saved.custom_head is None
    assert [path.name for path in saved.weights] == ["model.safetensors"]
    assert custom.task_head_in(saved) == "base"
    with pytest.raises(SqueezeError, match=r"has no head\.safetensors"):
        custom.load_headed(saved)


def test_the_weights_hash_counts_the_head(pico_bert: Path, tmp_path: Path) -> None:
    hashes = []
    for move in (False, True):
        model = made(pico_bert, "bilstm")
        (unlike(model) if move else model).save_pretrained(tmp_path)
        hashes.append(Checkpoint(tmp_path, "x").weights_sha256())
    assert hashes[0] != hashes[1]
