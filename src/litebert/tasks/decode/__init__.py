"""What a head computed in; predictions out. numpy only: every engine predicts through it.

decode.py lists the heads and goes through the batches; labels.py and spans.py read each head.
"""
