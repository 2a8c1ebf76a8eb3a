"""Workflows of subagents: crash-proof, and nothing twice. An orchestrator for each state root, a host for each call."""
