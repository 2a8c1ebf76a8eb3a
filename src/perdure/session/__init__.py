"""One commit line: transactions, documents, publications, watches. Every durable change goes through here.

Invariants: commits leave in one order; nothing is handed out before it is stored; one module writes each kind of
record. May import storage and base only.
"""
