"""The names of the checks, for reports, filters and the guide."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["KINDS"]

KINDS: Mapping[str, str] = {
    "yaml": "the file cannot be read as YAML, or an include is not there",
    "key": "a key nobody knows, or a value of a wrong type",
    "repeated-key": "a key written twice in one mapping",
    "name": "no task, group, file or folder is called that",
    "defined-twice": "two files define the same name",
    "function": "a `!function` that is not there, or a helper file that cannot be imported",
    "parameters": "a function that cannot be called as it will be",
    "package": "a package that is not installed",
    "template": "a template that does not compile",
    "written-line-end": "a backslash and an n where a line end was meant",
    "choice-not-a-template": "a choice in a list that is written like a template, and is none",
    "column": "a template or a word that names no column",
    "scoring": "a metric, aggregation or filter nobody knows, or an argument it does not take",
    "metric-fit": "a metric that the output type never reports, or an aggregation that cannot sum it up",
    "metric-key": "a misspelt key of a metric",
    "repeated-metric": "a metric listed twice",
    "unsaid": "a metric nobody knows that does not say its aggregation and direction",
    "regex": "a pattern without group, one that matches nothing, one that does not compile",
    "filter-list": "a pipeline that ends in a list of answers",
    "filter-order": "a filter after the one that picks the answer",
    "repeated-pipeline": "two pipelines of one name",
    "repeats": "repeats that are all the same, or too few for a filter",
    "sampling": "settings of sampling that contradict each other",
    "setting": "a misspelt setting of generation",
    "until": "a stop text that stops nothing",
    "rounds": "a dialogue whose later rounds nothing makes, or nothing judges",
    "max-tokens": "a limit too small for the targets, or several limits",
    "no-effect": "settings for something the task does not do",
    "no-target": "nothing says what is right",
    "empty-prompt": "the model would be asked nothing",
    "data": "the dataset cannot be loaded, or `process_docs` fails",
    "split": "a split that is not there, or has no documents",
    "not-checked": "something could not be looked at: a dataset that is not here, code that was not run",
    "document": "a document that cannot be rendered",
    "media": "a picture, sound or video that is not there or not readable",
    "target-not-a-choice": "the target is not among the choices",
    "repeated-choice": "a choice that comes twice",
    "one-choice": "nothing to choose from",
    "spaces": "two spaces, or none, between question and answer",
    "cut-answer": "a stop text that occurs in the target",
    "fewshot": "too few examples, or a way to draw them that nobody knows",
    "fewshot-leak": "examples that give answers away",
    "unsafe-code": "the task executes what the model writes",
    "group": "a group without members, or with members it cannot have",
    "member": "a member that does not exist",
    "cycle": "a group that contains itself",
    "group-metric": "a metric or pipeline that no member has",
    "check": "the task made the check itself fail",
}
"""What each check finds."""
