"""The process that runs one execution of a call: it owns the call's session and answers on a socket of its own."""
