"""The light and dark colours of the pages as CSS variables; series and endings use the colours of the charts."""

from __future__ import annotations

from collections.abc import Mapping

from assay.viewer.charts import DARK, LIGHT, OUTCOME_COLOURS, Theme

__all__ = ["build_colour_rules"]

_LIGHT = {
    "paper": "#fbfbfa",
    "panel": "#ffffff",
    "ink": "#1d2126",
    "faint": "#59626c",
    "line": "#e4e6e9",
    "soft": "#f2f3f5",
    "accent": "#1a5fb4",
    "accent-soft": "#e6effa",
    "good": "#1a7f37",
    "bad": "#c4262e",
    "warn": "#8a5a00",
    "mark": "#fff1c2",
    "likely": "#d9a520",
    "unlikely": "#e0632f",
    "shadow": "0 1px 2px rgb(20 30 40 / 6%)",
}
_DARK = {
    "paper": "#101316",
    "panel": "#171b20",
    "ink": "#e5e9ed",
    "faint": "#98a2ad",
    "line": "#2a3037",
    "soft": "#1e232a",
    "accent": "#78b4ff",
    "accent-soft": "#1b2c42",
    "good": "#4ac26b",
    "bad": "#ff7b75",
    "warn": "#e0b04c",
    "mark": "#4d3f10",
    "likely": "#a8821e",
    "unlikely": "#c4552a",
    "shadow": "none",
    "open": "#3b434c",
}
"""Colours that differ from the light theme."""


def build_colour_rules() -> str:
    """Return the CSS rules of all colours: the system's theme, unless the user chose one."""
    light = _format_rule({**_LIGHT, **OUTCOME_COLOURS}, LIGHT)
    dark = _format_rule(_DARK, DARK)
    return (
        f":root {{ {light} }}\n"
        f'@media (prefers-color-scheme: dark) {{ :root:not([data-theme="light"]) {{ {dark} }} }}\n'
        f':root[data-theme="dark"] {{ {dark} }}\n'
    )


def _format_rule(colours: Mapping[str, str], theme: Theme) -> str:
    series = {f"series-{number}": colour for number, colour in enumerate(theme.series)}
    listed = "; ".join(f"--{name}: {value}" for name, value in {**colours, **series}.items())
    return f"{listed}; color-scheme: {theme.name};"
