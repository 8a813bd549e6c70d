"""Prompts to completions: one protocol, three back ends (vLLM here, a server, transformers); no retrieval."""
