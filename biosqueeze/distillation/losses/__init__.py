"""The losses of a distillation: by name or by default, checked against the models, with their layers paired."""
