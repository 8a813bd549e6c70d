"""Text to ranked passages; knows nothing of generation."""
