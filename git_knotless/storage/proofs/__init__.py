"""What an account has signed, and what is read checked against it."""
