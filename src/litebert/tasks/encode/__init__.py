"""Examples and a tokenizer in; token ids, batches and packed rows out.

encode.py reads texts, pairs and options, windows.py contexts and words that are longer than the
model's input. Both return Inputs (inputs.py), from which batches are drawn.
"""
