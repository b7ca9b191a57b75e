"""Examples and predictions in; official scores, intervals, slices and the worst examples out."""
