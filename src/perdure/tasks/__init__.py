"""Durable state machines: everything that runs is a task with a stored checkpoint.

Transitions are pure functions from record to record; the scheduler commits them. May import session and below.
"""
