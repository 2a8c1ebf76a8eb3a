"""Public help for testing: fake clock, scripted model, conformance suites, crash explorer. Nothing imports it but some CLI modules."""
