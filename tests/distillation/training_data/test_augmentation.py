"""Augmentation: entities and tags are kept, the seed determines all choices, candidates are the model's best words."""

import re
import string
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.distillation.models import load_models
from biosqueeze.distillation.options import DistillationOptions
from biosqueeze.distillation.request import AugmentationSettings, DataSettings, ModelSettings
from biosqueeze.distillation.training_data.augmentation import (
    augment,
    build_augmentation,
    check_kind,
    text_of,
    with_words,
)
from biosqueeze.distillation.training_data.datasets import TaskDataBuilder
from biosqueeze.distillation.training_data.word_proposer import (
    CANDIDATES,
    MaskedWord,
    Proposer,
    checked_proposer,
    open_proposer,
    source_of,
    word_tokens,
)
from biosqueeze.errors import UsageError
from biosqueeze.model_facts import sha256_of
from biosqueeze.models.loading.load import load_model, load_tokenizer
from biosqueeze.tasks.encoding.sequences import TextExample
from biosqueeze.tasks.readers.tagged import Sentence
from biosqueeze.training.options import TrainingOptions
from tests import pico
from tests.cli.run import Shell
from tests.manifests import history_entry, write_manifest

TAGS = ("O", "B-Disease", "I-Disease")
ONE_COPY = AugmentationSettings(copies=1)


def proposer_of(path: Path) -> Proposer:
    checkpoint = open_checkpoint(str(path))
    return Proposer(load_model(checkpoint, "mlm").model, load_tokenizer(checkpoint))


@pytest.fixture(scope="module")
def proposer(pico_bert: Path) -> Proposer:
    return proposer_of(pico_bert)


class FakeProposer:
    """Propose the same words everywhere."""

    words = tuple(f"{first}{second}" for first in "abc" for second in string.ascii_lowercase)

    def __len__(self) -> int:
        return len(self.words)

    def propose(self, texts: Any, places: list[MaskedWord]) -> np.ndarray:
        return np.tile(np.arange(CANDIDATES), (len(places), 1))


words = st.one_of(st.sampled_from(pico.words()), st.text(string.printable.strip(), min_size=1, max_size=8))
sentences = st.lists(st.tuples(words, st.sampled_from(TAGS)), min_size=1, max_size=20).map(
    lambda pairs: Sentence(tuple(w for w, _ in pairs), tuple(t for _, t in pairs))
)


@given(st.lists(sentences, max_size=5), st.integers(1, 4), st.integers(0, 9))
def test_entities_and_tags_are_kept(examples: list[Sentence], copies: int, seed: int) -> None:
    made = augment(examples, copies, FakeProposer(), seed)
    assert len(made) <= copies * len(examples)
    for one in made:
        of = [s for s in examples if s.tags == one.tags and len(s.words) == len(one.words) and _unchanged(s, one)]
        assert of
        assert one.words not in [s.words for s in of]


def _unchanged(former: Sentence, made: Sentence) -> bool:
    """Return whether only replaceable words changed."""
    triples = zip(former.words, made.words, former.tags, strict=True)
    return all(
        old == new or (tag == "O" and old.isalpha() and new.lower() in FakeProposer.words) for old, new, tag in triples
    )


@given(st.text(max_size=80), st.integers(0, 9))
def test_rest_of_the_text_is_kept(text: str, seed: int) -> None:
    example = TextExample((text,), "yes", "id7", "train.tsv:3")
    parts = text_of(example)
    assert with_words(example, parts, parts.words) == example
    for made in augment([example], 3, FakeProposer(), seed):
        assert replace(made, texts=example.texts) == example
        assert made != example
        assert len(text_of(made).words) == len(parts.words)
        others = np.setdiff1d(np.arange(len(parts.words)), parts.free)
        assert [text_of(made).words[i] for i in others] == [parts.words[i] for i in others]


def test_words_with_signs_and_digits_are_kept() -> None:
    text = "IL-2 binds CD25-positive cells, p53 doesn't."
    free = text_of(TextExample((text,), None)).free
    assert [text_of(TextExample((text,), None)).words[i] for i in free] == ["binds", "cells"]


def test_two_of_five_words_are_replaced() -> None:
    examples = [Sentence(("zz",) * 50, ("O",) * 50)] * 40
    made = augment(examples, 1, FakeProposer(), 0)
    changed = np.mean([word != "zz" for one in made for word in one.words])
    assert len(made) == 40
    assert 0.36 < changed < 0.44
    assert {word for one in made for word in one.words} == {"zz", *FakeProposer.words[:CANDIDATES]}


def test_choices_depend_on_seed_and_number_alone() -> None:
    examples = [Sentence(tuple(s.split()), ("O",) * len(s.split())) for s in pico.sentences(6)]
    first = augment(examples, 2, FakeProposer(), 3)
    assert augment(examples, 2, FakeProposer(), 3) == first
    assert augment(examples, 2, FakeProposer(), 4) != first
    alone = augment(examples[:2], 2, FakeProposer(), 3)
    assert first[: len(alone)] == alone


def test_capitals_are_kept() -> None:
    made = augment([Sentence(("Gene", "gene"), ("O", "O"))] * 9, 3, FakeProposer(), 0)
    assert all(one.words[0].istitle() and one.words[1].islower() for one in made)


@pytest.mark.parametrize("family", ["bert", "roberta", "albert", "distilbert", "mobilebert"])
def test_candidates_equal_a_naive_model_call(family: str, tmp_path: Path) -> None:
    path = pico.save(family, tmp_path / family, "mlm")
    proposer = proposer_of(path)
    texts = [tuple(s.rstrip(".").split()) for s in pico.sentences(4, seed=3)]
    places = [MaskedWord(text, word) for text in range(len(texts)) for word in range(0, len(texts[text]), 3)]
    proposals = proposer.propose(texts, places)
    for place, row in zip(places, proposals, strict=True):
        expected = _naive(proposer, texts[place.text], place.word)
        assert [proposer.words[i] for i in row] == expected


@torch.no_grad()
def _naive(proposer: Proposer, words: tuple[str, ...], place: int) -> list[str]:
    """Run the stock model on one sentence and return its best words in order."""
    tokenizer = proposer.tokenizer
    text = " ".join(tokenizer.mask_token if i == place else word for i, word in enumerate(words))
    if tokenizer.mask_token == "<mask>":  # RoBERTa's mask includes the space before it, and the first word has one too
        text = f" {text}".replace(" <mask>", "<mask>")
    encoded = tokenizer(text, return_tensors="pt", return_token_type_ids=False)
    (at,) = (encoded["input_ids"][0] == tokenizer.mask_token_id).nonzero()
    logits = proposer.model(**encoded).logits[0, int(at)]
    best = []
    for piece in logits.argsort(descending=True).tolist():
        raw = tokenizer.convert_ids_to_tokens(piece)
        text = raw.lstrip("\u0120\u2581")
        begins = raw != text if _marks_beginnings(proposer) else not raw.startswith("##")
        if begins and text.isalpha() and len(best) < CANDIDATES:
            best.append(text)
    return best


def _marks_beginnings(proposer: Proposer) -> bool:
    """Return whether tokens that begin a word are marked, instead of those that continue one."""
    return proposer.model.config.model_type in ("roberta", "albert")


def test_batch_size_changes_nothing(proposer: Proposer) -> None:
    texts = [tuple(s.rstrip(".").split()) for s in pico.sentences(6, seed=4)]
    places = [MaskedWord(text, word) for text in range(6) for word in range(len(texts[text]))]
    first = proposer.propose(texts, places)
    assert (proposer.propose(texts, places, batch_size=1) == first).all()
    assert (proposer.propose(texts, places, batch_size=7) == first).all()


def test_context_of_the_last_word_of_a_long_text(proposer: Proposer) -> None:
    long = tuple(pico.words()[:110]) * 3
    whole = proposer.propose([long], [MaskedWord(0, len(long) - 1)])
    room = proposer.room
    context = proposer.propose([long[-room - 1 :]], [MaskedWord(0, room)])
    assert (whole == context).all()
    middle = proposer.propose([long], [MaskedWord(0, 165)])
    assert middle.shape == (1, CANDIDATES)


def test_candidates_are_whole_words(proposer: Proposer) -> None:
    assert len(proposer.words) > 100
    assert all(word.isalpha() for word in proposer.words)
    pieces = proposer.tokenizer.convert_ids_to_tokens(word_tokens(proposer.tokenizer).tolist())
    assert not [piece for piece in pieces if piece.startswith("##") or piece in proposer.tokenizer.all_special_tokens]
    assert list(proposer.words) == pieces


def test_text_that_contains_a_mask_token(proposer: Proposer) -> None:
    texts = [("cells", "[MASK]", "gene"), ("cells", "the", "gene")]
    assert proposer.propose(texts, [MaskedWord(0, 2), MaskedWord(1, 1)]).shape == (2, CANDIDATES)


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(sentences, min_size=1, max_size=3), st.integers(0, 9))
def test_any_sentence_with_a_real_model(proposer: Proposer, examples: list[Sentence], seed: int) -> None:
    for one in augment(examples, 1, proposer, seed):
        assert one.tags in [sentence.tags for sentence in examples]


def test_source_of_a_fine_tuned_teacher(pico_ner: Path, pico_bert: Path, tmp_path: Path) -> None:
    teacher = _tuned_from(pico_ner, pico_bert, tmp_path)
    assert source_of(open_checkpoint(str(teacher))).path == pico_bert
    assert len(open_proposer(ONE_COPY, open_checkpoint(str(teacher)), "fp32")) > 100


def test_a_plan_needs_no_weights_of_the_proposer(pico_ner: Path, tmp_path: Path) -> None:
    """A dry run fetches the config of a model on the Hub, and not its weights."""
    source = pico.save("bert", tmp_path / "source")
    teacher = open_checkpoint(str(_tuned_from(pico_ner, source, tmp_path)))
    (source / "model.safetensors").unlink()
    assert checked_proposer(ONE_COPY, teacher, weights=False).path == source
    with pytest.raises(UsageError, match="but "):
        checked_proposer(ONE_COPY, teacher)


def test_models_that_cannot_propose_raise(pico_ner: Path, pico_bert: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"does not record what it was fine-tuned from.*--augment-with"):
        open_proposer(ONE_COPY, open_checkpoint(str(pico_ner)), "fp32")
    headless = pico.save("bert", tmp_path / "headless", "base")
    teacher = _tuned_from(pico_ner, headless, tmp_path)
    with pytest.raises(UsageError, match=r"has no masked-language-model head.*--augment-with"):
        open_proposer(ONE_COPY, open_checkpoint(str(teacher)), "fp32")
    with pytest.raises(UsageError, match="headless has no masked-language-model head"):
        open_proposer(replace(ONE_COPY, checkpoint=str(headless)), open_checkpoint(str(teacher)), "fp32")
    pico.save("bert", headless, "base", seed=1)
    with pytest.raises(UsageError, match=r"has changed.*--augment-with"):
        open_proposer(ONE_COPY, open_checkpoint(str(teacher)), "fp32")
    (headless / "config.json").unlink()
    with pytest.raises(UsageError, match=r"config\.json.*--augment-with"):
        open_proposer(ONE_COPY, open_checkpoint(str(teacher)), "fp32")
    with pytest.raises(UsageError, match=r"ner, pico, classification.*relation"):
        check_kind("relation")


def _tuned_from(tuned: Path, source: Path, folder: Path) -> Path:
    """Copy a tagger, with a manifest of a fine-tuning from a checkpoint."""
    copy = folder / "tuned"
    copy.mkdir()
    for file in tuned.glob("*.*"):
        (copy / file.name).write_bytes(file.read_bytes())
    parent = {"name": str(source), "sha256": sha256_of([source / "model.safetensors"])}
    history = [history_entry(stage="shrink"), history_entry(stage="finetune", parents={"parent": parent})]
    write_manifest(copy, history=history)
    return copy


def test_unused_options_raise() -> None:
    with pytest.raises(UsageError, match="give --augment N too"):
        DistillationOptions(augment_with="somewhere")
    with pytest.raises(UsageError, match="--augment must be at least 0"):
        DistillationOptions(augment=-1)


QUICK = ("--student", "distil", "--precision", "fp32", "--batch-size", "8", "--max-length", "32", "--steps", "3")


@pytest.fixture(scope="module")
def tags(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tags")
    for seed, split in enumerate(("train", "dev", "test")):
        rows = [f"{word}\tO" for s in pico.sentences(20, seed) for word in (*s.rstrip(".").split(), "\n")]
        text = "\n".join(rows).replace("\n\n\tO", "\nsepsis\tB-Disease\nsyndrome\tI-Disease\n")
        (folder / f"{split}.tsv").write_text(text)
    return folder


def test_distill_with_augmentation(pico_ner: Path, pico_bert: Path, tags: Path, tmp_path: Path, shell: Shell) -> None:
    teacher = _tuned_from(pico_ner, pico_bert, tmp_path)
    result = shell("distill --teacher", teacher, "--data", tags, "--augment", 3, *QUICK)
    assert result.code == 0, result.err
    assert "words are proposed by" in result.err
    counted = re.search(r"augmented: (\d+) examples added to 20", result.err)
    assert counted
    assert 50 <= int(counted[1]) <= 60


def test_train_is_augmented_and_dev_is_not(pico_ner: Path, pico_bert: Path, tags: Path) -> None:
    teacher = open_checkpoint(str(pico_ner))
    models = load_models(ModelSettings(kind="task", teachers=[teacher], student=teacher, task="ner"))
    augmentation = build_augmentation(AugmentationSettings(2, str(pico_bert)), "ner", teacher, "fp32")
    settings = DataSettings(data=str(tags))
    plain, rich = (TaskDataBuilder(settings, models, TrainingOptions(), how).build() for how in (None, augmentation))
    first, second = plain.source.labelled, rich.source.labelled
    assert len(second) > 1.8 * len(first) + 10
    assert all(np.array_equal(a["input_ids"], b["input_ids"]) for a, b in zip(first, second, strict=False))
    entities = [sum((f["labels"] == 1).sum() for f in features) / len(features) for features in (first, second)]
    assert entities == [1.0, 1.0]
    assert plain.dev is not None
    assert rich.dev is not None
    assert plain.dev.examples == rich.dev.examples


def test_impossible_augmentation_raises(pico_ner: Path, pico_bert: Path, tags: Path, shell: Shell) -> None:
    no_data = shell("distill --teacher", pico_bert, "--augment", 1, *QUICK)
    assert no_data.code == 2
    assert "--data" in no_data.err
    unknown = shell("distill --teacher", pico_ner, "--data", tags, "--augment", 1, *QUICK)
    assert unknown.code == 2
    assert "--augment-with" in unknown.err
