"""Own files in, examples out: CSV, TSV, JSONL or Parquet.

rows.py reads a file's rows, columns.py recognizes its columns, example.py makes an example of a
row, split.py finds or cuts train, dev and test, table.py does all of it for a task.
"""
