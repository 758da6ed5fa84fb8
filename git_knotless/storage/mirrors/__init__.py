"""Bare repositories in the cache, which git's own upload-pack serves from."""
