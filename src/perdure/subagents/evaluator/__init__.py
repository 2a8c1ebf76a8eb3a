"""Workflow scripts, each in a process that can do nothing but compute and talk."""
