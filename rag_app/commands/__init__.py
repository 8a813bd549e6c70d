"""The commands that `rag_app/cli.py` gathers, a file for each."""
