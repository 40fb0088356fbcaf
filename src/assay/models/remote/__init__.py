"""Models that are called over HTTP.

transport/       addresses, TLS, proxies, connections and the HTTP client
protocol/        request payloads and reply parsing: chat completions, responses API, prompt log-probabilities, media
capabilities/    probes that find out what a server supports, and their cache
endpoint.py      one call with concurrency limit, retries and timeout: `await endpoint.post(path, payload, read)`
concurrency.py   adaptive limit of concurrent calls
rate_limits.py   pauses, and the rate that a server was seen to accept; window_limits.py limits per minute
counting_periods.py  servers that count calls in periods
token_bounds.py  the largest number of tokens of a call, which a limit of tokens per minute reserves
retries.py       the retry policy; `options.py` sets its numbers
errors.py        classification of errors
options.py       the arguments of these models
openai.py        adapter for chat completions and the responses API
completions.py   adapter for text completions: generation and log-probabilities
tokenizer.py     client-side tokenizers for servers that accept token ids
"""
