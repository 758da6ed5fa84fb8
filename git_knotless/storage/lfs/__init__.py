"""Git LFS objects: their records, and their way in and out."""
