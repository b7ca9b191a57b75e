"""A model and batches in; losses and predictions out."""
