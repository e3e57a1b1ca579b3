"""Augmentation: entities and tags stay, chance is the seed's, and candidates are the model's own, word by word."""

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
from biosqueeze.distillation.augmentation import (
    CANDIDATES,
    Blank,
    Proposer,
    augmentation_of,
    augmented,
    check_kind,
    open_proposer,
    origin_of,
    rebuilt,
    text_of,
    word_pieces,
)
from biosqueeze.distillation.datasets import DataSources, load_training_data
from biosqueeze.distillation.models import load_models
from biosqueeze.distillation.options import DistillationOptions
from biosqueeze.errors import UsageError
from biosqueeze.model_facts import sha256_of
from biosqueeze.models.load import load_model, load_tokenizer
from biosqueeze.tasks.encoding.sequences import Labelled
from biosqueeze.tasks.readers.tagged import Sentence
from tests import pico
from tests.cli.run import Shell
from tests.manifests import history_entry, write_manifest

TAGS = ("O", "B-Disease", "I-Disease")


def proposer_of(path: Path) -> Proposer:
    checkpoint = open_checkpoint(str(path))
    return Proposer(load_model(checkpoint, "mlm").model, load_tokenizer(checkpoint))


@pytest.fixture(scope="module")
def proposer(pico_bert: Path) -> Proposer:
    return proposer_of(pico_bert)


class Fake:
    """Proposes the same words everywhere."""

    words = tuple(f"{first}{second}" for first in "abc" for second in string.ascii_lowercase)

    def __len__(self) -> int:
        return len(self.words)

    def propose(self, texts: Any, blanks: list[Blank]) -> np.ndarray:
        return np.tile(np.arange(CANDIDATES), (len(blanks), 1))


words = st.one_of(st.sampled_from(pico.words()), st.text(string.printable.strip(), min_size=1, max_size=8))
sentences = st.lists(st.tuples(words, st.sampled_from(TAGS)), min_size=1, max_size=20).map(
    lambda pairs: Sentence(tuple(w for w, _ in pairs), tuple(t for _, t in pairs))
)


@given(st.lists(sentences, max_size=5), st.integers(1, 4), st.integers(0, 9))
def test_entities_stay_and_tags_stay_with_their_words(found: list[Sentence], copies: int, seed: int) -> None:
    made = augmented(found, copies, Fake(), seed)
    assert len(made) <= copies * len(found)
    for one in made:
        of = [s for s in found if s.tags == one.tags and len(s.words) == len(one.words) and _unchanged(s, one)]
        assert of
        assert one.words not in [s.words for s in of]


def _unchanged(former: Sentence, made: Sentence) -> bool:
    """Whether all that may not change is as it was."""
    triples = zip(former.words, made.words, former.tags, strict=True)
    return all(old == new or (tag == "O" and old.isalpha() and new.lower() in Fake.words) for old, new, tag in triples)


@given(st.text(max_size=80), st.integers(0, 9))
def test_a_text_keeps_all_but_its_words(text: str, seed: int) -> None:
    example = Labelled((text,), "yes", "id7", "train.tsv:3")
    parts = text_of(example)
    assert rebuilt(example, parts, parts.words) == example
    for made in augmented([example], 3, Fake(), seed):
        assert replace(made, texts=example.texts) == example
        assert made != example
        assert len(text_of(made).words) == len(parts.words)
        others = np.setdiff1d(np.arange(len(parts.words)), parts.free)
        assert [text_of(made).words[i] for i in others] == [parts.words[i] for i in others]


def test_words_with_signs_and_digits_stay() -> None:
    text = "IL-2 binds CD25-positive cells, p53 doesn't."
    free = text_of(Labelled((text,), None)).free
    assert [text_of(Labelled((text,), None)).words[i] for i in free] == ["binds", "cells"]


def test_about_two_words_in_five_change() -> None:
    examples = [Sentence(("zz",) * 50, ("O",) * 50)] * 40
    made = augmented(examples, 1, Fake(), 0)
    changed = np.mean([word != "zz" for one in made for word in one.words])
    assert len(made) == 40
    assert 0.36 < changed < 0.44
    assert {word for one in made for word in one.words} == {"zz", *Fake.words[:CANDIDATES]}


def test_the_seed_decides_and_neighbours_do_not() -> None:
    examples = [Sentence(tuple(s.split()), ("O",) * len(s.split())) for s in pico.sentences(6)]
    first = augmented(examples, 2, Fake(), 3)
    assert augmented(examples, 2, Fake(), 3) == first
    assert augmented(examples, 2, Fake(), 4) != first
    alone = augmented(examples[:2], 2, Fake(), 3)
    assert first[: len(alone)] == alone


def test_the_capital_of_a_word_stays() -> None:
    made = augmented([Sentence(("Gene", "gene"), ("O", "O"))] * 9, 3, Fake(), 0)
    assert all(one.words[0].istitle() and one.words[1].islower() for one in made)


@pytest.mark.parametrize("family", ["bert", "roberta", "albert", "distilbert", "mobilebert"])
def test_candidates_are_those_of_a_naive_model_call(family: str, tmp_path: Path) -> None:
    path = pico.save(family, tmp_path / family, "mlm")
    proposer = proposer_of(path)
    texts = [tuple(s.rstrip(".").split()) for s in pico.sentences(4, seed=3)]
    blanks = [Blank(text, word) for text in range(len(texts)) for word in range(0, len(texts[text]), 3)]
    found = proposer.propose(texts, blanks)
    for blank, row in zip(blanks, found, strict=True):
        expected = _naive(proposer, texts[blank.text], blank.word)
        assert [proposer.words[i] for i in row] == expected


@torch.no_grad()
def _naive(proposer: Proposer, words: tuple[str, ...], blank: int) -> list[str]:
    """The stock model on a single sentence, with its whole head, and its best words in order."""
    tokenizer = proposer.tokenizer
    text = " ".join(tokenizer.mask_token if i == blank else word for i, word in enumerate(words))
    if tokenizer.mask_token == "<mask>":  # RoBERTa's mask takes the place of the space, and its first word has one too
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
    """Whether pieces that begin a word are marked, and not those that continue one."""
    return proposer.model.config.model_type in ("roberta", "albert")


def test_the_batch_changes_nothing(proposer: Proposer) -> None:
    texts = [tuple(s.rstrip(".").split()) for s in pico.sentences(6, seed=4)]
    blanks = [Blank(text, word) for text in range(6) for word in range(len(texts[text]))]
    first = proposer.propose(texts, blanks)
    assert (proposer.propose(texts, blanks, batch_size=1) == first).all()
    assert (proposer.propose(texts, blanks, batch_size=7) == first).all()


def test_a_word_at_the_end_of_a_long_text_is_seen_with_what_is_before_it(proposer: Proposer) -> None:
    long = tuple(pico.words()[:110]) * 3
    whole = proposer.propose([long], [Blank(0, len(long) - 1)])
    room = proposer.room
    shown = proposer.propose([long[-room - 1 :]], [Blank(0, room)])
    assert (whole == shown).all()
    middle = proposer.propose([long], [Blank(0, 165)])
    assert middle.shape == (1, CANDIDATES)


def test_no_candidate_is_special_or_a_continuation(proposer: Proposer) -> None:
    assert len(proposer.words) > 100
    assert all(word.isalpha() for word in proposer.words)
    pieces = proposer.tokenizer.convert_ids_to_tokens(word_pieces(proposer.tokenizer).tolist())
    assert not [piece for piece in pieces if piece.startswith("##") or piece in proposer.tokenizer.all_special_tokens]
    assert list(proposer.words) == pieces


def test_a_text_that_holds_the_mask_itself_is_no_trap(proposer: Proposer) -> None:
    texts = [("cells", "[MASK]", "gene"), ("cells", "the", "gene")]
    assert proposer.propose(texts, [Blank(0, 2), Blank(1, 1)]).shape == (2, CANDIDATES)


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(sentences, min_size=1, max_size=3), st.integers(0, 9))
def test_any_sentence_goes_through_a_real_model(proposer: Proposer, found: list[Sentence], seed: int) -> None:
    for one in augmented(found, 1, proposer, seed):
        assert one.tags in [sentence.tags for sentence in found]


def test_the_teacher_knows_where_it_comes_from(pico_ner: Path, pico_bert: Path, tmp_path: Path) -> None:
    teacher = _tuned_from(pico_ner, pico_bert, tmp_path)
    assert origin_of(open_checkpoint(str(teacher))).path == pico_bert
    options = DistillationOptions(augment=1, precision="fp32")
    assert len(open_proposer(options, open_checkpoint(str(teacher)))) > 100


def test_what_cannot_propose_is_said(pico_ner: Path, pico_bert: Path, tmp_path: Path) -> None:
    options = DistillationOptions(augment=1, precision="fp32")
    with pytest.raises(UsageError, match=r"does not say what it was fine-tuned from.*--augment-with"):
        open_proposer(options, open_checkpoint(str(pico_ner)))
    headless = pico.save("bert", tmp_path / "headless", "base")
    teacher = _tuned_from(pico_ner, headless, tmp_path)
    with pytest.raises(UsageError, match=r"has no masked-language-model head.*--augment-with"):
        open_proposer(options, open_checkpoint(str(teacher)))
    with pytest.raises(UsageError, match="headless has no masked-language-model head"):
        open_proposer(replace(options, augment_with=str(headless)), open_checkpoint(str(teacher)))
    pico.save("bert", headless, "base", seed=1)
    with pytest.raises(UsageError, match=r"any more.*--augment-with"):
        open_proposer(options, open_checkpoint(str(teacher)))
    (headless / "config.json").unlink()
    with pytest.raises(UsageError, match=r"config\.json.*--augment-with"):
        open_proposer(options, open_checkpoint(str(teacher)))
    with pytest.raises(UsageError, match=r"ner, pico, classification.*relation"):
        check_kind("relation")


def _tuned_from(tuned: Path, source: Path, folder: Path) -> Path:
    """A copy of a tagger whose manifest says that it was fine-tuned from a checkpoint."""
    copy = folder / "tuned"
    copy.mkdir()
    for file in tuned.glob("*.*"):
        (copy / file.name).write_bytes(file.read_bytes())
    parent = {"name": str(source), "sha256": sha256_of([source / "model.safetensors"])}
    history = [history_entry(stage="shrink"), history_entry(stage="finetune", parents={"parent": parent})]
    write_manifest(copy, history=history)
    return copy


def test_options_that_have_no_use_are_refused() -> None:
    with pytest.raises(UsageError, match="--augment 1"):
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


def test_distill_learns_from_the_copies(
    pico_ner: Path, pico_bert: Path, tags: Path, tmp_path: Path, shell: Shell
) -> None:
    teacher = _tuned_from(pico_ner, pico_bert, tmp_path)
    said = shell("distill", "--teacher", teacher, "--data", tags, "--augment", 3, *QUICK)
    assert said.code == 0, said.err
    assert "pico-bert proposes the words" in said.err
    counted = re.search(r"augmented: (\d+) examples more, of 20", said.err)
    assert counted
    assert 50 <= int(counted[1]) <= 60


def test_the_copies_are_trained_on_and_dev_has_none(pico_ner: Path, pico_bert: Path, tags: Path) -> None:
    options = DistillationOptions(augment=2, augment_with=str(pico_bert), precision="fp32")
    teacher = open_checkpoint(str(pico_ner))
    pairing = load_models(options, "task", [teacher], teacher, "ner")
    more = augmentation_of(options, "ner", teacher)
    plain, rich = (
        load_training_data(options, pairing, DataSources(data=str(tags), augment=how)) for how in (None, more)
    )
    first, second = plain.source.labelled, rich.source.labelled
    assert len(second) > 1.8 * len(first) + 10
    assert all(np.array_equal(a["input_ids"], b["input_ids"]) for a, b in zip(first, second, strict=False))
    entities = [sum((f["labels"] == 1).sum() for f in features) / len(features) for features in (first, second)]
    assert entities == [1.0, 1.0]
    assert plain.dev is not None
    assert rich.dev is not None
    assert plain.dev.examples == rich.dev.examples


def test_what_cannot_be_augmented_is_refused(pico_ner: Path, pico_bert: Path, tags: Path, shell: Shell) -> None:
    no_data = shell("distill", "--teacher", pico_bert, "--augment", 1, *QUICK)
    assert no_data.code == 2
    assert "give --data with them" in no_data.err
    unknown = shell("distill", "--teacher", pico_ner, "--data", tags, "--augment", 1, *QUICK)
    assert unknown.code == 2
    assert "--augment-with" in unknown.err
