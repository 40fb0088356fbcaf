"""Command lines and functions of the other harnesses, carried out by Assay. The distribution in `aliases/` gives them their names."""
