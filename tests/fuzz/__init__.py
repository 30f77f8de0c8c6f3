"""Junk, by the minute: every reader of hostile bytes under a fuzzer that learns."""
