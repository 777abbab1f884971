"""Study `thesis`: how representations of a language model and a tagger come to be, beside chance."""
