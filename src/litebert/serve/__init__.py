"""The HTTP service: requests in, predictions out. Sees the Predictor alone; no torch."""
