"""Tokenizers have the casing of their vocabulary."""

import json
import shutil
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer
from transformers.convert_slow_tokenizer import import_protobuf

from biosqueeze.errors import SqueezeError
from biosqueeze.models.loading.load import load_config, load_tokenizer
from biosqueeze.models.tokenizers import tokenizer_settings
from biosqueeze.models.tokenizers.casing import is_cased, lowers_case, tokenizer_facts
from tests import pico
from tests.layouts import edit_json, opened, sentencepiece


def vocabulary_only(path, *, cased, **settings):
    """Keep only vocab.txt, as before 2020, and a tokenizer_config.json if there are settings."""
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        (path / name).unlink(missing_ok=True)
    (path / "vocab.txt").write_text("\n".join(pico.wordpieces(cased)) + "\n")
    if settings:
        (path / "tokenizer_config.json").write_text(json.dumps(settings))
    return opened(path)


def test_vocabulary_with_capitals_is_cased(pico_bert, copy_of, tmp_path, capsys):
    tokenizer = load_tokenizer(vocabulary_only(copy_of(pico_bert), cased=True))
    assert tokenizer.tokenize("BRCA1") == ["BRCA", "##1"]
    assert not lowers_case(tokenizer.backend_tokenizer)
    assert "keeps case" in capsys.readouterr().err
    tokenizer.save_pretrained(tmp_path / "out")
    shutil.copy(pico_bert / "config.json", tmp_path / "out")
    assert AutoTokenizer.from_pretrained(tmp_path / "out").tokenize("BRCA1") == ["BRCA", "##1"]
    assert (tmp_path / "out" / "tokenizer.json").is_file()


def test_vocabulary_without_capitals_is_uncased(pico_bert_uncased, copy_of, capsys):
    tokenizer = load_tokenizer(vocabulary_only(copy_of(pico_bert_uncased), cased=False))
    assert tokenizer.tokenize("Carci") == ["carci"]
    assert capsys.readouterr().err == ""


def test_vocabulary_overrides_a_wrong_setting(pico_bert, copy_of, capsys):
    tokenizer = load_tokenizer(vocabulary_only(copy_of(pico_bert), cased=True, do_lower_case=True))
    assert not lowers_case(tokenizer.backend_tokenizer)
    assert "kept cased" in capsys.readouterr().err


def test_right_setting_gives_no_message(pico_bert, copy_of, capsys):
    assert not lowers_case(
        load_tokenizer(vocabulary_only(copy_of(pico_bert), cased=True, do_lower_case=False)).backend_tokenizer
    )
    assert capsys.readouterr().err == ""


def test_vocab_txt_gives_the_ids_of_tokenizer_json(pico_bert, copy_of):
    text = "BRCA1 mutation of Hepatitis, (p53)."
    assert load_tokenizer(vocabulary_only(copy_of(pico_bert), cased=True))(text) == load_tokenizer(opened(pico_bert))(
        text
    )


def test_mpnet_from_vocab_txt(tmp_path):
    path = pico.save("mpnet", tmp_path / "model")
    known = load_tokenizer(opened(path))
    vocabulary = sorted(known.get_vocab().items(), key=lambda item: item[1])
    checkpoint = vocabulary_only(path, cased=True)
    (path / "vocab.txt").write_text("\n".join(piece for piece, _ in vocabulary) + "\n")
    tokenizer = load_tokenizer(checkpoint)
    for text in ("BRCA1 mutation of Hepatitis, (p53).", "\u4e00"):
        assert tokenizer(text) == known(text)
    assert tokenizer.special_tokens_map == known.special_tokens_map and tokenizer.unk_token == "[UNK]"


def test_tokenizer_json_is_used_unchanged(pico_bert, copy_of):
    # transformers would rebuild it, lower-casing, because of this class without do_lower_case.
    path = copy_of(pico_bert)
    edit_json(path / "tokenizer_config.json", drop=("do_lower_case",), tokenizer_class="BertTokenizer")
    assert load_tokenizer(opened(path)).tokenize("BRCA1") == ["BRCA", "##1"]


def test_kept_case_with_an_uncased_vocabulary_warns(pico_bert_uncased, copy_of, capsys):
    path = copy_of(pico_bert_uncased)
    load_tokenizer(opened(path))
    assert "keeps case" not in capsys.readouterr().err
    content = json.loads((path / "tokenizer.json").read_text())
    content["normalizer"]["lowercase"] = False
    (path / "tokenizer.json").write_text(json.dumps(content))
    load_tokenizer(opened(path))
    assert "keeps case although the vocabulary has no capitals" in capsys.readouterr().err


def test_lower_casing_of_a_cased_vocabulary_warns(pico_bert, copy_of, capsys):
    path = copy_of(pico_bert)
    content = json.loads((path / "tokenizer.json").read_text())
    content["normalizer"]["lowercase"] = True
    (path / "tokenizer.json").write_text(json.dumps(content))
    assert lowers_case(load_tokenizer(opened(path)).backend_tokenizer)
    assert "has capitals" in capsys.readouterr().err


def test_truncation_of_tokenizer_json_is_removed(pico_bert, copy_of):
    path = copy_of(pico_bert)
    tokenizer = pico.tokenizer_of("bert")
    tokenizer.backend_tokenizer.enable_truncation(8)
    tokenizer.backend_tokenizer.enable_padding(length=8)
    tokenizer.backend_tokenizer.save(str(path / "tokenizer.json"))
    loaded = load_tokenizer(opened(path))
    assert len(loaded("the gene")["input_ids"]) == 4
    assert len(loaded("gene " * 20)["input_ids"]) == 22


def test_special_tokens_without_a_config(pico_any, copy_of):
    path = copy_of(pico_any)
    known = load_tokenizer(opened(path)).special_tokens_map
    (path / "tokenizer_config.json").unlink()
    (path / "special_tokens_map.json").unlink(missing_ok=True)
    assert load_tokenizer(opened(path)).special_tokens_map == known


def test_longest_input_and_input_names(pico_any):
    tokenizer = load_tokenizer(opened(pico_any))
    assert tokenizer.model_max_length == pico.POSITIONS
    takes_types = load_config(opened(pico_any)).model_type in ("bert", "electra", "albert", "mobilebert")
    assert ("token_type_ids" in tokenizer.model_input_names) == takes_types


def test_roberta_from_vocabulary_and_merges(pico_roberta, copy_of):
    path = copy_of(pico_roberta)
    model = json.loads((path / "tokenizer.json").read_text())["model"]
    (path / "vocab.json").write_text(json.dumps(model["vocab"]))
    (path / "merges.txt").write_text("#version: 0.2\n" + "\n".join(" ".join(pair) for pair in model["merges"]))
    (path / "tokenizer.json").unlink()
    text = "BRCA1 mutation of Hepatitis, (p53)."
    assert load_tokenizer(opened(path))(text) == load_tokenizer(opened(pico_roberta))(text)


@pytest.mark.parametrize("family", ["xlm-roberta", "camembert"])
def test_multilingual_tokenizers_from_sentencepiece(tmp_path, family):
    source = pico.save(family, tmp_path / "source")
    known = load_tokenizer(opened(source))
    tokenizer = load_tokenizer(sentencepiece(pico.save(family, tmp_path / "old")))
    assert tokenizer.get_vocab() == known.get_vocab()
    for text in ("BRCA1 mutation of Hepatitis, (p53).", "the  gene\nprotein", "the <mask> gene"):
        assert tokenizer(text)["input_ids"] == known(text)["input_ids"]
    assert tokenizer("gene", "cells") == known("gene", "cells")
    assert tokenizer.special_tokens_map.items() >= known.special_tokens_map.items()
    tokenizer.save_pretrained(source)
    assert AutoTokenizer.from_pretrained(source)(text)["input_ids"] == known(text)["input_ids"]


def test_albert_from_sentencepiece(pico_albert, copy_of, tmp_path, capsys):
    known = load_tokenizer(opened(pico_albert))
    checkpoint = sentencepiece(copy_of(pico_albert))
    tokenizer = load_tokenizer(checkpoint)
    for text in ("BRCA1 mutation of Hepatitis, (p53).", "the  gene\nprotein"):
        assert tokenizer(text) == known(text)
    assert tokenizer("gene", "cells") == known("gene", "cells")
    assert tokenizer.special_tokens_map.items() >= known.special_tokens_map.items()
    assert "keeps case" in capsys.readouterr().err
    facts = {"kind": "Unigram", "pieces": len(known), "cased": True}
    assert tokenizer_facts(checkpoint.path) == facts == tokenizer_facts(pico_albert)
    shutil.copytree(pico_albert, tmp_path / "out", ignore=shutil.ignore_patterns("*token*"))
    tokenizer.save_pretrained(tmp_path / "out")
    assert load_tokenizer(opened(tmp_path / "out"))(text) == known(text)
    assert AutoTokenizer.from_pretrained(tmp_path / "out")(text)["input_ids"] == known(text)["input_ids"]


def test_deberta_from_sentencepiece_falls_back_to_bytes(tmp_path):
    path = pico.save("deberta-v2", tmp_path / "model")
    known = load_tokenizer(opened(path))
    content = json.loads((path / "tokenizer.json").read_text())
    content["model"]["vocab"] += [[f"<0x{byte:02X}>", -20.0] for byte in range(256)]
    content["added_tokens"][-1]["id"] += 256  # [MASK] lies behind the pieces
    (path / "tokenizer.json").write_text(json.dumps(content))
    pico.model_of("deberta-v2", len(known) + 256).save_pretrained(path)
    tokenizer = load_tokenizer(sentencepiece(path))
    for text in ("BRCA1 mutation of Hepatitis, (p53).", "the  gene\nprotein", " gene"):
        assert tokenizer(text)["input_ids"] == known(text)["input_ids"]
    assert tokenizer.mask_token_id == len(tokenizer) - 1 == len(known) + 255
    assert tokenizer("gene", "cells")["input_ids"] == known("gene", "cells")["input_ids"]
    assert [t for t in tokenizer.tokenize("\u00b5") if t != "\u2581"] == ["<0xC2>", "<0xB5>"]
    tokenizer.save_pretrained(path)
    stock = AutoTokenizer.from_pretrained(path)
    assert stock("\u00b5 gene")["input_ids"] == tokenizer("\u00b5 gene")["input_ids"]


def test_uncased_sentencepiece_lowers_case(tmp_path, capsys):
    checkpoint = sentencepiece(pico.save("albert", tmp_path / "model", cased=False))
    tokenizer = load_tokenizer(checkpoint)
    assert tokenizer.tokenize("Gene") == tokenizer.tokenize("gene")
    assert not tokenizer_facts(checkpoint.path)["cased"] and capsys.readouterr().err == ""


def test_settings_of_deberta_apply_to_its_sentencepiece(tmp_path):
    checkpoint = sentencepiece(pico.save("deberta-v2", tmp_path / "model"), do_lower_case=True, split_by_punct=True)
    tokenizer = load_tokenizer(checkpoint)
    assert tokenizer("The GENE")["input_ids"] == tokenizer("the gene")["input_ids"]
    assert tokenizer.tokenize("gene,gene").count("\u2581gene") == 2
    (checkpoint.path / "tokenizer_config.json").unlink()
    plain = load_tokenizer(checkpoint)
    assert plain("The GENE")["input_ids"] != plain("the gene")["input_ids"]
    assert plain.tokenize("gene,gene").count("\u2581gene") == 1


def test_damaged_sentencepiece(pico_albert, copy_of):
    with pytest.raises(SqueezeError, match=r"spiece.model is not a SentencePiece model"):
        load_tokenizer(sentencepiece(copy_of(pico_albert), b"version https://git-lfs"))


@pytest.mark.parametrize(
    ("family", "role"), [("deberta-v2", "unk_token"), ("albert", "cls_token"), ("xlm-roberta", "sep_token")]
)
def test_special_token_that_no_piece_is(tmp_path, family, role):
    checkpoint = sentencepiece(pico.save(family, tmp_path / "model"), **{role: "<other>"})
    with pytest.raises(SqueezeError, match=f"has no piece '<other>', which .* names as {role}"):
        load_tokenizer(checkpoint)


def test_sentencepiece_that_is_not_unigram(pico_albert, copy_of):
    proto = import_protobuf().ModelProto()
    proto.pieces.add(piece="<unk>", score=0.0, type=2)
    with pytest.raises(SqueezeError, match=r"not the tokenizer of a model of type albert.*copy tokenizer.json"):
        load_tokenizer(sentencepiece(copy_of(pico_albert), proto.SerializeToString()))


def test_missing_tokenizer(pico_bert, copy_of):
    path = copy_of(pico_bert)
    (path / "tokenizer.json").unlink()
    with pytest.raises(SqueezeError, match=r"has no tokenizer \(tokenizer.json"):
        load_tokenizer(opened(path))


@pytest.mark.parametrize("content", ["{", "{}", '{"model": 1}'])
def test_damaged_tokenizer_json(pico_bert, copy_of, content):
    path = copy_of(pico_bert)
    (path / "tokenizer.json").write_text(content)
    with pytest.raises(SqueezeError, match="is not a valid tokenizer"):
        load_tokenizer(opened(path))


def test_vocab_txt_without_special_tokens(pico_bert, copy_of):
    checkpoint = vocabulary_only(copy_of(pico_bert), cased=True)
    (checkpoint.path / "vocab.txt").write_text("gene\ncell\n")
    with pytest.raises(SqueezeError, match=r"no piece \[UNK\]"):
        load_tokenizer(checkpoint)


def test_ids_beyond_the_embedding(pico_bert, copy_of):
    path = copy_of(pico_bert)
    tokenizer = pico.tokenizer_of("bert")
    tokenizer.add_tokens(["newword"])
    tokenizer.save_pretrained(path)
    checkpoint = opened(path)
    with pytest.raises(SqueezeError, match="are of different models") as caught:
        load_tokenizer(checkpoint)
    assert "\n" not in str(caught.value) and "the first without one is 'newword'" in str(caught.value)


def test_vocabulary_without_a_token_for_what_is_unknown(pico_bert, copy_of):
    path = copy_of(pico_bert)
    rules = json.loads((path / "tokenizer.json").read_text())
    del rules["model"]["vocab"]["[UNK]"]
    rules["added_tokens"] = [token for token in rules["added_tokens"] if token["content"] != "[UNK]"]
    (path / "tokenizer.json").write_text(json.dumps(rules))
    edit_json(path / "tokenizer_config.json", unk_token="[PAD]")
    with pytest.raises(SqueezeError, match=r"cannot encode every text.*token for what is unknown"):
        load_tokenizer(opened(path))


@pytest.mark.parametrize(("highest", "rows"), [(250_101, 251_000), (31_101, 32_102)])
def test_some_unused_rows_are_usual(highest, rows, capsys, monkeypatch):
    """Those of mDeBERTa, and of the Italian BERT of dbmdz."""
    monkeypatch.setattr(tokenizer_settings, "encode_unknown", lambda _tokenizer: [0])
    tokenizer_settings.check_tokenizer(SimpleNamespace(pad_token_id=0, get_vocab=lambda: {"last": highest}), rows)
    assert not capsys.readouterr().err


def test_many_unused_rows_give_a_warning(pico_bert, copy_of, capsys):
    path = copy_of(pico_bert)
    pico.model_of("bert", 2000).save_pretrained(path)
    load_tokenizer(opened(path))
    assert "is it this model's tokenizer?" in capsys.readouterr().err


@given(st.lists(st.text(alphabet="abc#1-", min_size=1), min_size=1))
def test_no_capitals_means_uncased(pieces):
    assert not is_cased([*pieces, "[CLS]", "[UNK]", "<s>"])
    assert is_cased([piece.upper() + "A" for piece in pieces])


@pytest.mark.parametrize("layout", ["tokenizer.json", "vocab.txt", "none"])
def test_tokenizer_facts(pico_bert, copy_of, layout):
    path = copy_of(pico_bert)
    if layout != "tokenizer.json":
        vocabulary_only(path, cased=True)
    if layout == "none":
        (path / "vocab.txt").unlink()
    known = {"kind": "WordPiece", "pieces": len(pico.wordpieces(cased=True)), "cased": True}
    assert tokenizer_facts(path) == (None if layout == "none" else known)
