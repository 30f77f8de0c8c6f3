"""Profiles for other programs: one module per format, each giving bytes piece by piece.

Names are hostile text (a thread may be called ``\\x1b[2J`` or ``a;b 5``): each module says what it
does so that no reader takes a name for anything else.
"""
