"""What a head computed in; predictions out. numpy only: every engine predicts through it.

decode.py lists the heads and reads labels, numbers and options; spans.py reads spans; exits.py
decides where a row leaves early.
"""
