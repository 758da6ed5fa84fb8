"""Packs: their records, and their way in, out and into one another."""
