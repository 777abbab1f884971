"""One streamed pass: sweeps of models over corpora, the statistics they collect, and the store of activations."""
