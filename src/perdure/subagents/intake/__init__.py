"""Requests, from their files to their decisions."""
