"""The explorer: a recording as a page, served from loopback, read-only by construction."""
