"""Figures for people: tables, text, Markdown, LaTeX, one HTML page."""
