"""Own files in, examples out: CSV, TSV, JSONL or Parquet."""
