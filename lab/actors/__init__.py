"""What processes in a scene do. Each file is a program of its own, run by ``python -I -S``.

They import nothing of Sexton: they are the node's tenants, not its doctor.
"""
