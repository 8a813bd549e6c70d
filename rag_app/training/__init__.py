"""From training data and a configuration to a checkpoint: `magrag train`, `mine` and `train-reader`."""
