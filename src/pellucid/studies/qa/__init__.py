"""Study `qa`: what the layers of a question answerer attribute its answer to."""
