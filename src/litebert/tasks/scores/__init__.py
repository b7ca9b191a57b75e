"""Examples and predictions in; official scores, intervals, slices and the worst examples out.

metrics.py and answers.py hold the formulas, score.py applies them to a task, evaluation.py is what
`litebert evaluate` and reports print, baselines.py is what a model has to beat.
"""
