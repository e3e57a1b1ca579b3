"""Vocabularies: train a tokenizer, compare tokenizers on text, and change the vocabulary of a checkpoint.

1. text: `sample` keeps lines of the whole corpus up to a number of bytes, in a temporary file; `alphabet` chooses the
   characters of a vocabulary.
2. training (`vocab`): `families` has the special tokens and the rules of each family; `train` computes the pieces;
   `stock` builds the family's tokenizer of transformers from them, and writes its files; `build` does all of it.
3. comparison (`vocab compare`): `comparison` counts the pieces of a text by several tokenizers; `terms` has the
   biomedical terms whose pieces are shown; `report` makes the tables.
4. change (`shrink --vocab-keep` and `--tokenizer`): `change` plans and applies it. For a cut `token_usage` counts the
   tokens of texts, `kept_tokens` chooses some, and `cut_tokenizer` writes the tokenizer. For a move to another
   vocabulary `former_tokens` finds the former tokens of each new one.
"""
