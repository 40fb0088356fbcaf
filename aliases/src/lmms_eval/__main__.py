"""`python -m lmms_eval`."""

from assay_compat.commands.lmms_eval import main

if __name__ == "__main__":
    main()
