"""What a model is measured by besides its training loss."""
