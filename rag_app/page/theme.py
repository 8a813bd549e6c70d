"""The page's colours and type, for light and dark; the rest is in assets/page.css."""

from __future__ import annotations

from pathlib import Path

import gradio as gr

ASSETS = Path(__file__).parent.parent / "assets"
CSS = ASSETS / "page.css"
ICON = ASSETS / "icon.svg"


def page_theme() -> gr.themes.Base:
    """A Gradio theme; its fonts come with Gradio and are served from this machine."""
    sans = (gr.themes.LocalFont("IBM Plex Sans"), "ui-sans-serif", "system-ui", "sans-serif")
    mono = (gr.themes.LocalFont("IBM Plex Mono"), "ui-monospace", "monospace")
    return gr.themes.Base(
        primary_hue=gr.themes.colors.teal,
        secondary_hue=gr.themes.colors.teal,
        neutral_hue=gr.themes.colors.slate,
        font=sans,
        font_mono=mono,
        radius_size=gr.themes.sizes.radius_md,
    ).set(
        body_background_fill="*neutral_50",
        body_background_fill_dark="*neutral_950",
        block_border_width="1px",
        block_label_background_fill="transparent",
        button_primary_background_fill="*primary_700",
        button_primary_background_fill_hover="*primary_800",
        button_primary_background_fill_dark="*primary_600",
        button_primary_background_fill_hover_dark="*primary_700",
        button_primary_text_color="white",
        input_background_fill="white",
        input_background_fill_dark="*neutral_900",
        slider_color="*primary_600",
    )
