import re
from collections import Counter
from itertools import groupby

import pytest

from biosqueeze.data.demo import RULES, SIZES, demo_ner, demo_text
from biosqueeze.data.records.splits import SPLITS
from biosqueeze.tasks.metrics.entities import score_entities


def _names(split: str) -> set[str]:
    """Return the entities of a split in lower case; this parses BIO on its own."""
    names = set()
    for words, tags in demo_ner(split):
        text = " ".join(f"{w}/{t[0]}" for w, t in zip(words, tags, strict=True))
        for match in re.finditer(r"\S+/B(?: \S+/I)*", text):
            names.add(re.sub(r"/[BI]", "", match.group()).lower())
    return names


def test_sizes_and_types():
    for split in SPLITS:
        sentences = demo_ner(split)
        assert len(sentences) == SIZES[split]
        kinds = Counter(tag[2:] for _, tags in sentences for tag in tags if tag[0] == "B")
        assert set(kinds) == {"Disease", "Drug", "Gene"}
        assert min(kinds.values()) > len(sentences) / 4


def test_sentences_depend_on_the_seed():
    assert demo_ner("dev") == demo_ner("dev")
    assert demo_ner("dev") != demo_ner("dev", seed=1)
    assert demo_text(20) == demo_text(30)[:20]
    assert demo_text(20) != demo_text(20, seed=1)


def test_no_name_of_one_split_is_in_another():
    names = {split: _names(split) for split in SPLITS}
    assert not names["train"] & (names["dev"] | names["test"])
    assert not names["dev"] & names["test"]
    assert all(len(entities) > 500 for entities in names.values())


def test_entities_have_several_words_and_short_forms():
    sentences = demo_ner("train")
    texts = [" ".join(f"{w}/{t}" for w, t in zip(*s, strict=True)) for s in sentences]
    assert sum("/I-Disease" in text for text in texts) > 300
    assert sum(bool(re.search(r"I-Disease \(/O [A-Z]+/B-Disease \)/O", text)) for text in texts) > 10
    assert sum(bool(re.search(r"\S+\d+[ABLabl]?/B-Disease deficiency/I-Disease", t)) for t in texts) > 50


def test_memorised_words_do_not_solve_test():
    """Tag each word of test with its most frequent tag in train."""
    seen: dict[str, Counter[str]] = {}
    for words, tags in demo_ner("train"):
        for word, tag in zip(words, tags, strict=True):
            seen.setdefault(word.lower(), Counter())[tag] += 1
    test = demo_ner("test")
    guesses = [[seen[w.lower()].most_common(1)[0][0] if w.lower() in seen else "O" for w in words] for words, _ in test]
    assert score_entities([tags for _, tags in test], guesses)["f1"] < 0.1


def test_the_shape_of_a_word_does_not_solve_test():
    """Symbols like KRT4 are genes, parts of diseases, short forms, and cell lines or instruments."""
    tags = Counter(
        tag
        for words, sentence in demo_ner("train")
        for word, tag in zip(words, sentence, strict=True)
        if re.fullmatch(r"[A-Z]{2,4}\d+[ABL]?", word)
    )
    assert {"O", "B-Gene", "B-Disease"} <= set(tags)
    assert tags["O"] > 0.1 * tags.total()


def test_every_rule_is_used():
    used = {part for forms in RULES.values() for form in forms for part in form.split() if part.isupper()}
    assert used == set(RULES) - {"START"}


def test_some_forms_and_morphemes_do_not_occur_in_train():
    seen = {split: {word.lower() for words, _ in demo_ner(split) for word in words} for split in SPLITS}
    assert {"suspected", "organoids"} <= seen["test"] - seen["train"]
    assert any(word.startswith("laryng") for word in seen["test"])
    assert not any("laryng" in word for word in seen["train"])
    assert any("laryng" in line for line in demo_text())


def test_text_is_formatted_as_prose():
    lines = demo_text()
    assert len(lines) == len(set(lines)) == 3000
    for line in lines:
        assert not re.search(r"\s[.,;)]|\(\s|\s-\s|  ", line), line
        assert line.endswith(".") and line[0] == line[0].upper()


def test_text_and_tagged_sentences_are_disjoint():
    tagged = {"".join(words).lower() for split in SPLITS for words, _ in demo_ner(split)}
    assert not {line.replace(" ", "").lower() for line in demo_text()} & tagged


@pytest.mark.parametrize("split", SPLITS)
def test_tags_are_valid_bio(split):
    for words, tags in demo_ner(split):
        assert len(words) == len(tags)
        assert all(word and not re.search(r"\s", word) for word in words)
        for kind, run in groupby(tags, key=lambda tag: tag[2:]):
            assert not kind or next(run)[0] == "B"
