"""Fine-tuning on labelled data: the learner, its options, and evaluation on the dev split."""
