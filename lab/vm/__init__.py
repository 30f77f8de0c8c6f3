"""Small virtual machines with real kernels and a real systemd, for incidents that are no fixtures.

``python -m lab.vm build`` makes a root file system and kernels, ``python -m lab.vm run`` plays
scenes on one of them. See lab/README.md.
"""
