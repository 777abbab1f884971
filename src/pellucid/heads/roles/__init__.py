"""What heads do: their statistics, functions, shapes, clusters and alignment with grammar."""
