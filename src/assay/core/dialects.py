"""The two dialects of task files, and everything that depends on the dialect.

lm_eval and lmms_eval interpret a few keys differently. `docs/guides/dialects.md` describes the differences.
`assay.tasks.files.dialects` detects the dialect of a task file.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

__all__ = ["Dialect"]


_LM_EVAL_FEWSHOT_KEYS = frozenset(
    "samples split process_docs doc_to_text doc_to_target doc_to_choice fewshot_delimiter target_delimiter gen_prefix".split()
)
_LMMS_EVAL_FILTERS = {"remove_whitespace": "remove_leading_space"}
_LMMS_EVAL_AGGREGATIONS = {"median": "middle"}


class Dialect(StrEnum):
    """The harness whose semantics apply to a task file. A member is equal to its name in `dialect:`.

    >>> Dialect("lmms_eval").answers_are_losses, Dialect.LM_EVAL == "lm_eval"
    (True, True)
    """

    LM_EVAL = "lm_eval"
    LMMS_EVAL = "lmms_eval"

    @property
    def _is_lmms_eval(self) -> bool:
        return self is Dialect.LMMS_EVAL

    # --- task files --------------------------------------------------------------------------------

    @property
    def isolates_helper_modules(self) -> bool:
        """Whether each `!function` executes its helper file again, so that functions share no module globals."""
        return self._is_lmms_eval

    @property
    def reverses_includes(self) -> bool:
        """Whether the first file of an `include` list has the highest precedence."""
        return self._is_lmms_eval

    @property
    def searches_working_folder(self) -> bool:
        """Whether `include` looks in the working folder before the folder of the task file."""
        return self._is_lmms_eval

    @property
    def keeps_inline_names(self) -> bool:
        """Whether a group that another one defines in place keeps its name, without that of the outer group before it."""
        return self._is_lmms_eval

    @property
    def prefers_group_keys(self) -> bool:
        """Whether the keys of a group take precedence over those that it sets for a single member."""
        return self._is_lmms_eval

    @property
    def separates_inline_groups(self) -> bool:
        """Whether the keys of a group do not reach the members of a group that it defines in place."""
        return self._is_lmms_eval

    def default_generation(self, until: Sequence[str] | None) -> dict[str, Any]:
        """Return the generation settings of a task without `generation_kwargs`, in the order of the harness."""
        if self._is_lmms_eval:
            return {"until": until, "do_sample": False}
        return {"temperature": 0.0, "do_sample": False, "max_gen_toks": 256, "until": until}

    # --- prompts -----------------------------------------------------------------------------------

    @property
    def hides_media_columns(self) -> bool:
        """Whether `doc_to_text` and `process_results` see documents without their media columns."""
        return self._is_lmms_eval

    @property
    def drops_final_newline(self) -> bool:
        """Whether a template loses a newline at its end."""
        return self._is_lmms_eval

    @property
    def may_draw_fewer_examples(self) -> bool:
        """Whether few-shot sampling draws first and then leaves the document itself out, without replacing it."""
        return self._is_lmms_eval

    @property
    def ignored_fewshot_keys(self) -> frozenset[str]:
        """The keys of `fewshot_config` without an effect. lmms_eval reads `sampler` only."""
        return _LM_EVAL_FEWSHOT_KEYS if self._is_lmms_eval else frozenset()

    @property
    def always_delimits_description(self) -> bool:
        """Whether the delimiter also separates system instruction and description if white space does already."""
        return self._is_lmms_eval

    @property
    def drops_context_of_inputs(self) -> bool:
        """Whether the prompts of a task whose choices are the inputs consist of the choices alone."""
        return self._is_lmms_eval

    # --- scores ------------------------------------------------------------------------------------

    @property
    def answers_are_losses(self) -> bool:
        """Whether filters and `process_results` get losses in place of log-probabilities."""
        return self._is_lmms_eval

    @property
    def scores_all_answers(self) -> bool:
        """Whether metrics of generated text are called with all answers of a document."""
        return self._is_lmms_eval

    def resolve_filter(self, name: str) -> str:
        """Return the registered name of the filter that the harness calls `name`."""
        return _LMMS_EVAL_FILTERS.get(name, name) if self._is_lmms_eval else name

    def resolve_aggregation(self, name: str) -> str:
        """Return the registered name of the aggregation that the harness calls `name`."""
        return _LMMS_EVAL_AGGREGATIONS.get(name, name) if self._is_lmms_eval else name

    def default_direction(self, metric: str, registered: bool | None) -> bool | None:
        """Return whether higher values of a metric are better, for a task file that does not say so."""
        return True if self._is_lmms_eval and metric == "ter" else registered

    @property
    def allows_unknown_aggregations(self) -> bool:
        """Whether a metric that `process_results` never returns may name an aggregation that does not exist."""
        return self._is_lmms_eval

    @property
    def default_reasoning_tags(self) -> tuple[tuple[str, str], ...]:
        """The tags around reasoning that are removed from answers when neither task nor run sets any."""
        return (("<think>", "</think>"), ("<analysis>", "</analysis>")) if self._is_lmms_eval else ()

    @property
    def removes_reasoning_last(self) -> bool:
        """Whether `reasoning_tags` apply after the filters, so that filters see the reasoning."""
        return self._is_lmms_eval

    @property
    def reports_unlisted_metrics(self) -> bool:
        """Whether a metric is reported that `process_results` returns but `metric_list` does not name."""
        return not self._is_lmms_eval

    # --- results -----------------------------------------------------------------------------------

    @property
    def weights_groups_by_size(self) -> bool:
        """The default of `weight_by_size` in `aggregate_metric_list`."""
        return not self._is_lmms_eval

    @property
    def always_pools_errors(self) -> bool:
        """Whether the standard error of a group is pooled from its tasks however they are weighted."""
        return self._is_lmms_eval

    @property
    def matches_metric_substrings(self) -> bool:
        """Whether an entry of `aggregate_metric_list` selects every `metric,filter` that contains its name."""
        return self._is_lmms_eval

    @property
    def reads_score_key(self) -> bool:
        """Whether a document's value may be a mapping with `score_key` and `cluster_key`."""
        return self._is_lmms_eval
