"""Fine-tuning on labelled data: options, learner, evaluation on dev, and searches over many runs."""
