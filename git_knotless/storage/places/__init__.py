"""Where a repository is: names, redirects, moves between accounts, copies."""
