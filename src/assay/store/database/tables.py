"""The tables of the journal and of the response cache, and the views of the journal.

A journal has one row per document with requests, one per response and one per scored document. Each is appended to the
end of its table, which makes a million documents cheap. The views provide one row per request, answer and verdict.
"""

from __future__ import annotations

from assay.core.records.endings import RETRIED_ENDINGS

__all__ = ["CACHE_TABLES", "JOURNAL_TABLES", "MAX_DOCUMENTS_PER_TASK", "RETRIED_LIST"]

MAX_DOCUMENTS_PER_TASK = 1 << 40
"""Row ids reserved for the documents of one task."""

RETRIED_LIST = "('" + "', '".join(RETRIED_ENDINGS) + "')"
"""The endings that a resumed run tries again, as an SQL list: `outcome IN {RETRIED_LIST}`."""

JOURNAL_TABLES = """
CREATE TABLE facts (            -- facts about the run: spec, plan, model identity, versions, times
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL,        -- JSON
    crc INTEGER NOT NULL DEFAULT 0  -- in every table: checksum of the other columns
) WITHOUT ROWID;
CREATE TABLE tasks (            -- the documents of a task have the rows from `first` to `last`
    name TEXT PRIMARY KEY, first INTEGER NOT NULL, last INTEGER NOT NULL,
    crc INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE asked (
    id INTEGER PRIMARY KEY,     -- tasks.first + index of the document
    fields TEXT NOT NULL,       -- JSON; media summarised
    target TEXT NOT NULL,       -- JSON
    count INTEGER NOT NULL,     -- number of requests
    requests TEXT NOT NULL,     -- JSON: each prompt once; requests [number, repeat, kind, prompt, argument, fingerprint];
                                -- with tools or a response format also their index in `options`;
                                -- `prompt_fields`: the fields after the prompt was built, if task code changed them
    crc INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE answered (
    id INTEGER PRIMARY KEY,
    fingerprint TEXT NOT NULL,
    text TEXT, logprob, greedy INTEGER,  -- logprob has no type, because REAL converts -0.0 to 0.0; NULL is NaN
    source TEXT NOT NULL,       -- model | judge | cache
    at REAL NOT NULL,
    details TEXT,               -- JSON of other details: finish, reasoning, tool_calls, tokens, seconds
    crc INTEGER                 -- without the id; rows of older versions: of the response only
);
CREATE TABLE tokens (           -- only of runs that store them
    id INTEGER PRIMARY KEY,     -- as in `answered`
    content TEXT NOT NULL,      -- JSON: pieces, logprobs
    crc INTEGER NOT NULL        -- over the response and this: detects tokens of another response
);
CREATE TABLE failures (         -- every failed attempt; retried when the run is resumed
    fingerprint TEXT NOT NULL, kind TEXT NOT NULL, message TEXT NOT NULL, attempts INTEGER NOT NULL, at REAL NOT NULL,
    crc INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE judge_requests (   -- requests to judges; their responses are in `answered`
    task TEXT NOT NULL, document INTEGER NOT NULL,
    judge TEXT NOT NULL,        -- the judge's name
    fingerprint TEXT NOT NULL,
    number INTEGER NOT NULL, repeat INTEGER NOT NULL,
    prompt TEXT NOT NULL,       -- plain text, or JSON messages
    settings TEXT NOT NULL,     -- the digest of its settings (facts: settings:<digest>)
    crc INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (task, document, judge, fingerprint)
) WITHOUT ROWID;
CREATE TABLE judged (
    id INTEGER PRIMARY KEY,     -- as in `asked`
    outcome TEXT NOT NULL,      -- an ending, see core/records/endings.py
    why TEXT NOT NULL,
    answers TEXT NOT NULL,      -- JSON: pipeline -> one value per request
    verdicts TEXT NOT NULL,     -- JSON: [pipeline, metric, kind, value, why]; a value is a number, or encoded text
    crc INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE filter_steps (     -- only of filters that are task code
    id INTEGER PRIMARY KEY,     -- as in `asked`
    content TEXT NOT NULL,      -- JSON: pipeline -> for each filter a value per request
    crc INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE repeats (          -- only of documents with repeats
    id INTEGER PRIMARY KEY,     -- as in `asked`
    content TEXT NOT NULL,      -- JSON: [pipeline, numbers of equal answers, metric -> a score per answer]
    crc INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE agent_events (     -- only of agent tasks: what an agent did besides its requests, in order
    id INTEGER NOT NULL,        -- as in `asked`
    repeat INTEGER NOT NULL,
    number INTEGER NOT NULL,
    kind TEXT NOT NULL,         -- opened | call (before a tool runs) | result (after it) | user | end
    content TEXT NOT NULL,      -- JSON
    at REAL NOT NULL,
    crc INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (id, repeat, number)
) WITHOUT ROWID;
CREATE TABLE estimates (
    task TEXT NOT NULL, metric TEXT NOT NULL, pipeline TEXT NOT NULL,
    content TEXT NOT NULL,      -- JSON of an Estimate
    crc INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (task, metric, pipeline)
) WITHOUT ROWID;
CREATE VIEW documents AS
    SELECT t.name AS task, a.id - t.first AS document, a.fields, a.target
    FROM tasks t JOIN asked a ON a.id BETWEEN t.first AND t.last;
CREATE VIEW requests AS         -- `argument`: the continuation; for generate the key of its settings (facts: settings:<key>)
    SELECT t.name AS task, a.id - t.first AS document,
        json_extract(r.value, '$[0]') AS number, json_extract(r.value, '$[1]') AS repeat,
        json_extract(r.value, '$[2]') AS kind,
        json_extract(a.requests, '$.prompts[' || json_extract(r.value, '$[3]') || ']') AS prompt,
        json_extract(r.value, '$[4]') AS argument, json_extract(r.value, '$[5]') AS fingerprint
    FROM tasks t JOIN asked a ON a.id BETWEEN t.first AND t.last, json_each(a.requests, '$.requests') r;
CREATE VIEW responses AS
    SELECT fingerprint, text, logprob, greedy,
        coalesce(json_extract(details, '$.finish'), '') AS finish, json_extract(details, '$.reasoning') AS reasoning,
        json_extract(details, '$.input_tokens') AS input_tokens,
        json_extract(details, '$.output_tokens') AS output_tokens,
        json_extract(details, '$.seconds') AS seconds, source, at
    FROM answered;
CREATE VIEW outcomes AS         -- the ending of each document
    SELECT t.name AS task, j.id - t.first AS document, j.outcome, j.why
    FROM tasks t JOIN judged j ON j.id BETWEEN t.first AND t.last;
CREATE VIEW answers AS          -- `content`: pipeline -> one value per request
    SELECT t.name AS task, j.id - t.first AS document, j.answers AS content
    FROM tasks t JOIN judged j ON j.id BETWEEN t.first AND t.last;
CREATE VIEW verdicts AS         -- `kind`: score | evidence | unscored
    SELECT t.name AS task, j.id - t.first AS document,
        json_extract(v.value, '$[0]') AS pipeline, json_extract(v.value, '$[1]') AS metric,
        json_extract(v.value, '$[2]') AS kind, json_extract(v.value, '$[3]') AS value,
        json_extract(v.value, '$[4]') AS why
    FROM tasks t JOIN judged j ON j.id BETWEEN t.first AND t.last, json_each(j.verdicts) v;
"""

CACHE_TABLES = """
CREATE TABLE responses (
    fingerprint TEXT PRIMARY KEY,
    text TEXT, logprob, greedy INTEGER,  -- logprob has no type, because REAL converts -0.0 to 0.0; NULL is NaN
    finish TEXT NOT NULL, reasoning TEXT,
    input_tokens INTEGER, output_tokens INTEGER, seconds REAL,
    source TEXT NOT NULL,       -- the model's name
    at REAL NOT NULL,
    crc INTEGER,                -- checksum of the response; NULL in rows of older versions
    tool_calls TEXT             -- JSON: {id, name, arguments}…; NULL if there are none
) WITHOUT ROWID;
CREATE TABLE tokens (           -- of responses to runs that store them
    fingerprint TEXT PRIMARY KEY,
    content TEXT NOT NULL,      -- JSON: pieces, logprobs
    crc INTEGER NOT NULL        -- over the response and this
) WITHOUT ROWID;
CREATE TABLE truncations (      -- of responses to prompts that exceed the context length
    fingerprint TEXT PRIMARY KEY,
    tokens INTEGER NOT NULL     -- tokens removed from the prompt
) WITHOUT ROWID;
"""
