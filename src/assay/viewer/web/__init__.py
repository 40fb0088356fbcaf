"""`assay view`: web pages for the runs on this machine. It only reads the store, and only this machine can connect.

server              opens the socket and runs uvicorn
app                 the application: routes and error pages; run_routes, comparison_routes: the routes of runs and comparisons
access_control      token, host name, origin and content security policy
run_catalog         the runs and their keys in URLs; run_entries: the rows of the list of runs
background_jobs     slow results, computed in threads and cached
live_updates        progress of running runs as server-sent events
pages               the data of each page; rendering: templates, static files, formatting

Starlette and uvicorn come with `assay-harness[viewer]`.
"""
