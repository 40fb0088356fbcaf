"""Commands and Python API of lm-eval and lmms-eval, run by Assay. The distribution in `aliases/` installs their names."""
