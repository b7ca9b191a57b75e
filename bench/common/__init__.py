"""What several benchmarks use, written once."""
