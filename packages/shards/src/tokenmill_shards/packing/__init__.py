"""A mixture written out in training order as fixed-length sequences: `prep pack`."""
