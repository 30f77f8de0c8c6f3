"""Find the seconds that stand out, and what grew in them (see docs/profile-method.md)."""

from sexton.profile.spikes.find import find
from sexton.profile.spikes.spike import SpikeOptions

__all__ = ["SpikeOptions", "find"]
