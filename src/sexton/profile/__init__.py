"""Stacks over time: decode, symbolise, heatmap, flame graph, difference, export."""
