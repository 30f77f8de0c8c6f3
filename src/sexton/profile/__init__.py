"""Profiles: read captures, name functions, draw heatmaps and flame graphs, find spikes, export."""
