"""Programs of the curriculum, rewritten without a change of meaning: the same results, and no new graph break."""
