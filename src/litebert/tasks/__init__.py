"""Downstream tasks: files in; examples, inputs, losses, predictions and scores out. Nothing here
trains.

The path of one row of reviews.csv:

1. `registry.open_task("classify", "reviews.csv")` chooses between benchmarks/ and tables/.
2. `tables/rows.py` reads the row, `tables/columns.py` tells which column is the text and which the
   label, `tables/example.py` makes a TextExample of it (examples.py), and `tables/table.py`
   collects all of them, their labels (`tables/labels.py`) and splits (`tables/split.py`) in a
   TaskData (task.py).
3. `encode/encode.py` tokenizes it into Inputs, from which batches are drawn (`encode/inputs.py`).
   Contexts and words longer than a row go through `encode/windows.py`.
4. `heads/heads.py` computes the loss of a batch; each head is a small class in `heads/labels.py` or
   `heads/spans.py`. What a head computes becomes a prediction (predictions.py) in
   `decode/decode.py`.
5. `scores/score.py` compares predictions with the truth by the formulas of `scores/metrics.py` and
   `scores/answers.py`, `scores/evaluation.py` adds intervals, slices and the worst examples,
   `scores/baselines.py` is what a model has to beat.

A benchmark's row takes the same path from 3 on: benchmarks/ reads its official files. Only heads/
and the linear baseline import torch.

To add a head: its kind in config/model.py, its module in model/heads.py, a class in heads/, entries
in heads.HEADS, predictions and scores/score.py. To add a benchmark: an entry in benchmarks/.
"""
