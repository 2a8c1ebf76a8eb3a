"""Conversations that run models and tools: the built-in tasks, and the rules of a conversation.

Everything a client shows is in the transcript and four built-in documents. May import extensions and below.
"""
