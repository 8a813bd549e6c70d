"""Searchers: one a file, behind the protocol of `retriever.search.base`."""
