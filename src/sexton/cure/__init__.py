"""From a diagnosis to a cure: plans, the one writer, the executor, its journal and its undo."""
