"""Side-by-side benchmarks; every ratio comes from interleaved passes of one run."""
