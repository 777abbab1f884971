"""Study `heads`: whether specialised heads do the heavy lifting."""
