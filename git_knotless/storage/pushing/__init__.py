"""Moving refs: what a push may do, what it sends, and in which pieces."""
