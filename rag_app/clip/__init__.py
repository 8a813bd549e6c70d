"""CLIP's two towers, trained with the symmetric or a one-directional loss and compared: `magrag train-clip`."""
