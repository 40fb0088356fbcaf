"""Models behind HTTP: one layer that calls, waits, retries and limits; on top of it one adapter per protocol.

address.py     where the server is, and how to get there (TLS, proxies)
http.py        HTTP/1.1 on asyncio: connections, replies; costs a quarter of what general clients cost
faults.py      what went wrong with a call, whether it can heal, how long to wait
traffic.py     how many calls are open: finds the server's limit, honours pauses and budgets
keys.py        secrets from the environment or a keyring
endpoint.py    all of that in one call: `await endpoint.post(path, payload, read)`
"""
