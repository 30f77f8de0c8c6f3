"""Real incidents on real kernels, recorded by Sexton and cleaned up afterwards."""
