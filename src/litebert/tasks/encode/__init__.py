"""Examples and a tokenizer in; token ids, batches and packed rows out."""
