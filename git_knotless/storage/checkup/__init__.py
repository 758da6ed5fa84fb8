"""What `git knotless doctor` finds out about a host."""
