"""The training data of a distillation: labelled and unlabelled examples, and variants of labelled ones."""
