"""Processes of a scene. Each file is a separate program, run by ``python -I -S``.

They import nothing of Sexton, because they play the node's workload.
"""
