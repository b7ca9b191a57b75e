"""Gradients → weights: LAMB and AdamW, who is decayed, and the rate at each step."""
