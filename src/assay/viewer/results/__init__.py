"""The results of a run, collected once for every output: score rows, the notes below them, throughput, an overview."""
