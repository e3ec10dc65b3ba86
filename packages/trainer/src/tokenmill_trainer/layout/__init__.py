"""How a model lies over ranks and memory."""
