"""`python -m lm_eval`."""

from assay_compat.commands.lm_eval import main

if __name__ == "__main__":
    main()
