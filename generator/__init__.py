"""Prompts to completions; knows nothing of retrieval."""
