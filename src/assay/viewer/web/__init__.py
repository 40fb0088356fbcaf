"""Pages over the runs on this machine: `assay view`. Reads the store, starts nothing, is reached from this machine only.

guard       who may ask: a token, this machine's name, one origin
library     which runs there are
cards       a run in short          live      runs that are being written, as they go
run_page, documents_page, document_page, comparison_page: what each page shows
server      Starlette and uvicorn around them; both come with `assay-harness[viewer]`
"""
