"""The folder of shared data, where it lies beside the checkout or in it."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DATA = next((place for place in (ROOT / "shared/data", ROOT.parent / "shared/data") if place.is_dir()), None)

needs_data = pytest.mark.skipif(DATA is None, reason="the shared data folder is not beside the checkout")
