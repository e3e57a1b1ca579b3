"""Vocabularies: train a tokenizer on text with the `tokenizers` library, and compare tokenizers on text.

1. text: `sample` keeps lines of the whole corpus up to a number of bytes, in a temporary file; `alphabet` chooses the
   characters of a vocabulary.
2. training: `families` has the special tokens and the rules of each family; `train` computes the pieces; `stock` builds
   the family's tokenizer of transformers from them, and writes its files.
3. comparison: `comparison` counts the pieces of a text by several tokenizers; `terms` has the biomedical terms whose
   pieces are shown.
"""
