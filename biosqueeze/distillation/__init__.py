"""Distillation: train a student on the outputs of one or several teachers.

The flow, one module per step; `pipeline.distill` runs all of them:

1. options: `options` declares them, and the stage builds one `request.DistillationRequest` from them;
2. models: `inputs` opens the checkpoints, `models` loads the teachers, and loads or builds the student;
3. losses: `losses.presets` resolves the named presets of --loss, `losses.config` checks the losses against the models
   and pairs student layers with teacher layers (`losses.layer_provenance`);
4. training data, in `training_data`: `datasets` reads labelled data, and `unlabelled` unlabelled data, which
   `text_strata` draws like the labelled; `augmentation` adds variants of labelled examples, with words from
   `word_proposer`;
5. teachers, in `teachers`: `setup` selects the source of their outputs: live models (`sources`), for labelled examples
   on a CPU the memory (`memory_cache`), the cache on disk (`cache`), or outputs computed in advance by teachers with
   another vocabulary (`cross_vocabulary`). `mlm_head` first adds masked-language-model heads, fitted by `head_fitting`,
   to teachers that lack one. `score` is the teacher's score on dev;
6. student: `warm_start` may fine-tune it first; `learner` computes the losses in the training loop of
   `biosqueeze.training` (`training.chunked_loss`: those over a vocabulary).
"""
