"""Training of encoders under a chosen similarity: pairs, hard negatives, the loss, the loop, checkpoints."""
