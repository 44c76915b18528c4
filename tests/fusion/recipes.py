"""Recipes of random programs, as hypothesis draws them."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.fusion.checking import KINDS, SHAPES, Step

__all__ = ["recipes"]


@st.composite
def recipes(draw: st.DrawFn) -> tuple[list[tuple[int, ...]], list[Step]]:
    """Shapes of inputs, and steps."""
    shapes = draw(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=3))
    step = st.tuples(st.sampled_from(KINDS), st.integers(0, 9), st.integers(0, 9), st.integers(0, 99))
    return shapes, draw(st.lists(step, min_size=1, max_size=9))
