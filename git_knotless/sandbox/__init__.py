"""A PLC directory and personal data servers on loopback, to try knotless and to test it."""
