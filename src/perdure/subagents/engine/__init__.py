"""Workflows and calls as tasks of the orchestrator's session."""
