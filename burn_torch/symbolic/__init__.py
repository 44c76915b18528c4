"""Sizes that are not known yet, as polynomials of symbols."""
