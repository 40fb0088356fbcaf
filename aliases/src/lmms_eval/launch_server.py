"""`python -m lmms_eval.launch_server`: start the evaluation server."""

import sys

from assay_compat.evaluation_server.launch import main, prepare_server_args, run_server

__all__ = ["prepare_server_args", "run_server"]

if __name__ == "__main__":
    main(sys.argv[1:])
