"""Small virtual machines with real kernels and a real systemd, to play scenes in.

``python -m lab.vm build`` builds a root file system and kernels, ``python -m lab.vm run`` plays
scenes on one of them. See lab/README.md.
"""
