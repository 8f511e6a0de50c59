"""A Flower app without any training."""
