"""Keeps what a session commits; knows no meaning. One protocol, several backends. May import base only."""
