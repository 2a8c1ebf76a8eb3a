"""A session as a file of lines: each commit is one line of JSON."""
