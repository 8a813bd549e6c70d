"""Answers to numbers people can trust; knows retrievers and generators by their protocols only."""
