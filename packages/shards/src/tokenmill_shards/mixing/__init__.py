"""Which share of the samples comes from which source: the solver and `prep mix`."""
