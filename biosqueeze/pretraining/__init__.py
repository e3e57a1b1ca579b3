"""Pretraining: train an encoder on plain text, from random weights or from a checkpoint.

The flow, one module per step; `pipeline.pretrain` runs all of them:

1. options: `options` declares them, and the stage builds one `request.PretrainingRequest` from them;
2. model: `shapes` has the named shapes; `models` builds a model of a shape for a tokenizer, or loads a checkpoint;
3. data: `data` reads the corpus as masked texts or as pairs of texts;
4. objective: `objectives` selects the learner, `learner.MaskedLanguageLearner` or
   `replaced_tokens.ReplacedTokenLearner`;
5. scores: `held_out` computes loss and accuracy on text that is not trained on, and `probe` fine-tunes copies.
"""
