"""A model and batches in; losses and predictions out.

heads.py lists the heads and runs them: HEADS, task_losses, predict. labels.py and spans.py define
each head's loss and predictions, average.py makes one prediction of several models'.
"""
