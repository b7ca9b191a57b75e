"""What a head computed in; predictions out (decode.py), or whether rows leave early (exits.py)."""
