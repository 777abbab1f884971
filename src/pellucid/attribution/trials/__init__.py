"""Whether to believe an attribution: methods put to the same trials on the same texts."""
