"""An account's own records: addresses that commits are by, and a profile."""
