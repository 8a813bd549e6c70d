"""The page's colours and type, for light and dark; the rest is in assets/*.css."""

from __future__ import annotations

import re
from pathlib import Path

import gradio as gr

from eval.report.html import page as report

ASSETS = Path(__file__).parent.parent / "assets"
CSS = [ASSETS / "page.css", ASSETS / "figures.css"]
ICON = ASSETS / "icon.svg"


def report_style() -> str:
    """The look of a report's figures for what stands in .mg-report, in the page's light and dark."""
    folder = Path(report.__file__).parent
    light, dark = re.findall(r":root \{(.*?)\}", (folder / "report.css").read_text("utf-8"), re.DOTALL)
    rules = (folder / "figures.css").read_text("utf-8")
    return f".mg-report {{{_variables(light)}{rules}}}\n.dark .mg-report {{{_variables(dark)}}}\n"


def _variables(block: str) -> str:
    return "".join(re.findall(r"--[\w-]+: [^;]+;", block))


def page_theme() -> gr.themes.Base:
    """A Gradio theme; its fonts come with Gradio and are served from this machine."""
    # Gradio ships the semibold cut with most letters missing, so 600 is drawn with the bold one.
    sans = (gr.themes.LocalFont("IBM Plex Sans", weights=(400, 700)), "ui-sans-serif", "system-ui", "sans-serif")
    mono = (gr.themes.LocalFont("IBM Plex Mono", weights=(400, 700)), "ui-monospace", "monospace")
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
        # Gradio's own is too pale to be read on white.
        body_text_color_subdued="*neutral_600",
        block_border_width="1px",
        block_label_background_fill="transparent",
        button_primary_background_fill="*primary_700",
        button_primary_background_fill_hover="*primary_800",
        button_primary_background_fill_dark="*primary_700",
        button_primary_background_fill_hover_dark="*primary_800",
        button_primary_text_color="white",
        input_background_fill="white",
        input_border_width="1px",
        input_border_color="*neutral_300",
        input_border_color_dark="*neutral_700",
        input_border_color_focus="*primary_600",
        input_border_color_focus_dark="*primary_400",
        input_background_fill_dark="*neutral_900",
        slider_color="*primary_600",
    )
