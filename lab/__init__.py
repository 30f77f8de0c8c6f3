"""Real incidents on real kernels, under names of their own, cleaned up after."""
