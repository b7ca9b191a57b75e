"""Benchmarks in their official files: GLUE, SQuAD, RACE; and files for their servers (submit.py)."""
