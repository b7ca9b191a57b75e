"""Official files of GLUE, SQuAD and RACE in, examples out; submit.py writes predictions."""
