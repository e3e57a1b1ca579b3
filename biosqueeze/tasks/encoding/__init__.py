"""From examples to model inputs, and from model outputs back to predictions."""
