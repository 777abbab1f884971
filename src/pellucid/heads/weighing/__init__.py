"""What heads are worth: scores of a task, ablation, relevance and how far the methods agree."""
