"""The evaluation server of lmms-eval (`lmms_eval.entrypoints`), run by Assay.

protocol          requests and responses, and the checks of a request body
server_args       address and limits of a server
job_scheduler     the queue, which runs one job at a time
job_process       starts the process of a job and reads its results
job_command       that process: one `lmms-eval` command, as a run of Assay
http_server       the endpoints
launch            the command line of the server
client            `EvalClient` and `AsyncEvalClient`

The server takes jobs over HTTP and runs each as `assay run` does, with a journal. Starlette and uvicorn come with
`assay-harness[viewer]`. The client needs the standard library only.
"""
