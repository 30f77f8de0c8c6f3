"""Unattended fixes, within the limits of a policy."""
