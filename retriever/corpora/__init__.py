"""Readers of corpora: files, folders and hub data sets become a stream of passages."""

from __future__ import annotations

from retriever.corpora.corpus import Corpus, read_corpus
from retriever.corpora.report import CorpusReport

__all__ = ["Corpus", "CorpusReport", "read_corpus"]
