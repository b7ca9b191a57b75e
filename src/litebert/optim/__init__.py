"""Gradients → weights: LAMB, AdamW and Muon, weight-decay groups, and the learning rate at each
step."""
