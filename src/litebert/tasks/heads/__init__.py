"""A model and batches in; losses and predictions out.

heads.py lists the heads and runs them: HEADS, task_losses, predict, average. labels.py and spans.py
define each head: the dtype of its targets, its loss, what predictions are decoded from
(tasks/decode).
"""
