from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.core.errors import AssayError, ErrorGroup, TaskError, UnknownName
from assay.tasks.files.index import TaskIndex, find_task_roots
from assay.tasks.files.selection import Selection, select_tasks

Write = Callable[..., Path]
LEAST = "dataset_path: json\ntest_split: test\n"


@pytest.fixture
def chosen(write: Write, tmp_path: Path) -> Callable[..., Selection]:
    """`chosen("a", "group")`: selected from five tasks and what the test wrote itself."""
    for name, tag in (
        ("a", "small"),
        ("b", "small"),
        ("c", "large"),
        ("math_add", "large"),
        ("math_sub", "[]"),
    ):
        write(f"tasks/{name}.yaml", f"task: {name}\ntag: {tag}\n{LEAST}")
    return lambda *words: select_tasks(words, TaskIndex.build([tmp_path / "tasks"]))


Chosen = Callable[..., Selection]


def test_names_are_taken_in_the_order_they_are_given_once(chosen: Chosen) -> None:
    selection = chosen("c", "a", "c")
    assert selection.requested == list(selection.tasks) == ["c", "a"]
    assert selection.groups == {}


def test_a_tag_stands_for_its_tasks_in_name_order(chosen: Chosen) -> None:
    selection = chosen("small")
    assert selection.requested == ["a", "b"]
    assert selection.groups == {}, "a tag is not reported as a group"


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("math_*", ["math_add", "math_sub"]),
        ("?", ["a", "b", "c"]),
        ("[ab]", ["a", "b"]),
        ("*_sub", ["math_sub"]),
    ],
)
def test_a_glob_stands_for_every_name_it_matches(chosen: Chosen, word: str, expected: list[str]) -> None:
    assert chosen(word).requested == expected


def test_a_glob_that_matches_only_a_tag_means_the_tasks_of_the_tag(chosen: Chosen) -> None:
    assert chosen("smal*").requested == ["a", "b"]


def test_a_glob_does_not_ask_a_task_twice_for_its_group(write: Write, chosen: Chosen) -> None:
    write("tasks/math.yaml", "group: math\ntask: [math_add]\n")
    selection = chosen("math*")
    assert selection.requested == ["math", "math_sub"]
    assert list(selection.tasks) == ["math_add", "math_sub"]


# --- groups ----------------------------------------------------------------------------------------


def test_a_group_keeps_its_members_in_order_with_its_own_facts(write: Write, chosen: Chosen) -> None:
    path = write(
        "tasks/g.yaml",
        """\
        group: g
        group_alias: The G
        task: [c, a]
        aggregate_metric_list:
          - metric: acc
            weight_by_size: false
        metadata:
          version: 3
        """,
    )
    selection = chosen("g")
    group = selection.groups["g"]
    assert (group.members, group.alias, group.version, group.path) == (("c", "a"), "The G", 3, str(path))
    assert [(metric.metric, metric.weight_by_size) for metric in group.metrics] == [("acc", False)]
    assert (selection.requested, list(selection.tasks), selection.leaves("g")) == (
        ["g"],
        ["c", "a"],
        ["c", "a"],
    )


def test_a_group_of_one_task_may_name_it_alone(write: Write, chosen: Chosen) -> None:
    write("tasks/g.yaml", "group: g\ntask:\n  - a\n")
    assert chosen("g").groups["g"].members == ("a",)


def test_groups_nest_and_a_tag_inside_a_group_expands(write: Write, chosen: Chosen) -> None:
    write("tasks/inner.yaml", "group: inner\ntask: [small]\n")
    write("tasks/outer.yaml", "group: outer\ntask: [inner, c, a]\n")
    selection = chosen("outer")
    assert selection.groups["outer"].members == ("inner", "c", "a")
    assert selection.groups["inner"].members == ("a", "b")
    assert selection.leaves("outer") == ["a", "b", "c"], "each task once"
    assert selection.requested == ["outer"]


def test_keys_of_a_group_that_are_not_its_own_override_its_members(write: Write, chosen: Chosen) -> None:
    write("tasks/g.yaml", "group: g\nnum_fewshot: 3\nmetadata: {version: 1}\ntask: [a, b]\n")
    tasks = chosen("g").tasks
    assert [tasks[name].num_fewshot for name in "ab"] == [3, 3]
    assert tasks["a"].version == "Yaml", "the metadata are the group's own"


@pytest.mark.parametrize(
    ("outer", "inner", "expected"),
    [
        ("task: [inner]", "task: [a]", None),
        ("task: [inner]", "num_fewshot: 1\ntask: [a]", 1),
        ("num_fewshot: 2\ntask: [inner]", "num_fewshot: 1\ntask: [a]", 2),
        ("num_fewshot: 2\ntask: [inner]", "task: [{task: a, num_fewshot: 3}]", 3),
        ("task: [{group: inner, num_fewshot: 4}]", "num_fewshot: 1\ntask: [a]", 4),
        ("task: [{group: inner, num_fewshot: 4}]", "task: [{task: a, num_fewshot: 3}]", 3),
        ("task: [{task: inner, num_fewshot: 5}]", "num_fewshot: 1\ntask: [a]", 5),
        ("task: [{task: small, num_fewshot: 6}]", "task: [a]", 6),
    ],
)
def test_the_nearer_to_the_user_the_stronger_the_override_and_the_member_itself_is_strongest(
    write: Write, chosen: Chosen, outer: str, inner: str, expected: int | None
) -> None:
    write("tasks/inner.yaml", f"group: inner\n{inner}\n")
    write("tasks/outer.yaml", f"group: outer\n{outer}\n")
    assert chosen("outer").tasks["a"].num_fewshot == expected


def test_a_member_may_be_renamed_for_people_and_changed(write: Write, chosen: Chosen) -> None:
    write("tasks/g.yaml", "group: g\ntask:\n  - task: a\n    task_alias: Alpha\n    fewshot_split: train\n")
    task = chosen("g").tasks["a"]
    assert (task.name, task.alias, task.fewshot_split) == ("a", "Alpha", "train")


def test_a_group_may_define_a_task_inline(write: Write, chosen: Chosen) -> None:
    write(
        "tasks/g.yaml",
        """\
        group: g
        num_fewshot: 2
        task:
          - task: fresh
            dataset_path: json
            test_split: dev
            doc_to_text: q
        """,
    )
    selection = chosen("g")
    task = selection.tasks["g::fresh"]
    assert (task.test_split, task.num_fewshot, task.doc_to_text) == ("dev", 2, "q")
    assert selection.groups["g"].members == ("g::fresh",)


def test_a_group_may_define_the_tasks_that_no_file_defines(write: Write, chosen: Chosen) -> None:
    """With the dataset in the keys of the group, as in lm-eval."""
    write(
        "tasks/g.yaml",
        """\
        group: g
        dataset_path: json
        test_split: dev
        doc_to_text: q
        task:
          - plain
          - task: described
            description: D
          - a
        """,
    )
    selection = chosen("g")
    assert selection.groups["g"].members == ("g::plain", "g::described", "a")
    plain, described = selection.tasks["g::plain"], selection.tasks["g::described"]
    assert (plain.dataset_path, plain.test_split, plain.description) == ("json", "dev", "")
    assert (described.dataset_path, described.doc_to_text, described.description) == ("json", "q", "D")


def test_a_group_may_define_a_class_task_inline(write: Write, chosen: Chosen) -> None:
    """`scrolls` of lm_eval 0.4.2 has members of a name and a class."""
    write("tasks/task.py", "class Qasper: ...\n")
    write("tasks/g.yaml", "group: g\ntask:\n  - task: qasper\n    class: !function task.Qasper\n")
    selection = chosen("g")
    assert selection.groups["g"].members == ("g::qasper",)
    assert getattr(selection.tasks["g::qasper"].config["class"], "__name__", "") == "Qasper"


def test_a_function_as_metric_of_a_group_matches_no_metric(write: Write, chosen: Chosen) -> None:
    """`code2text` of lm-eval: its group has no score there."""
    write("tasks/m.py", "def bleu(items): ...\n")
    write("tasks/g.yaml", "group: g\ntask: []\naggregate_metric_list:\n  - metric: !function m.bleu\n")
    (metric,) = chosen("g").groups["g"].metrics
    assert metric.metric == "!function bleu"


def test_a_group_may_define_a_group_inline(write: Write, chosen: Chosen) -> None:
    write(
        "tasks/g.yaml",
        """\
        group: g
        num_fewshot: 2
        task:
          - group: part
            group_alias: Part
            task: [a, b]
            aggregate_metric_list: {metric: acc}
          - c
        """,
    )
    selection = chosen("g")
    assert selection.groups["g"].members == ("g::part", "c")
    assert selection.groups["g::part"].members == ("a", "b")
    assert (selection.groups["g::part"].alias, len(selection.groups["g::part"].metrics)) == ("Part", 1)
    assert selection.tasks["b"].num_fewshot == 2


def test_keys_of_a_group_of_lmms_eval_win_over_those_of_a_member(write: Write, chosen: Chosen) -> None:
    """They do not reach the members of a group that it defines in place."""
    members = "task: [{task: a, description: M}, {group: part, task: [b]}]"
    for dialect, found in (("lm_eval", ("M", "G")), ("lmms_eval", ("G", ""))):
        write("tasks/g.yaml", f"group: g\ndialect: {dialect}\ndescription: G\n{members}\n")
        tasks = chosen("g").tasks
        assert (tasks["a"].description, tasks["b"].description) == found


def test_an_inline_group_of_lmms_eval_keeps_its_name(write: Write, chosen: Chosen) -> None:
    write(
        "tasks/g.yaml",
        """\
        group: g
        dialect: lmms_eval
        task:
          - group: part
            task: [a]
          - group: inner
            task:
              - group: part
                task: [b]
        """,
    )
    selection = chosen("g")
    assert selection.groups["g"].members == ("part", "inner")
    assert selection.groups["inner"].members == ("inner::part",), "the name is taken"
    assert (selection.groups["part"].members, selection.leaves("inner")) == (("a",), ["b"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("task: [nowhere]", "no task is called `nowhere`"),
        ("task: [aa]", "no task is called `aa`"),
        ("task: [{task: nowhere, num_fewshot: 1}]", "no task is called `nowhere`"),
        ("task: [5]", "must be a name"),
        ("task: [{num_fewshot: 1}]", "must be a name"),
        ("task: [a]\nrepeats: x", "`repeats` must be"),
        ("task: [a]\nnonsense: 1", "no key `nonsense`"),
        ("task: [a]\naggregate_metric_list: [acc]", "aggregate_metric_list"),
        ("task: [a]\naggregate_metric_list: [{weight_by_size: true}]", "aggregate_metric_list"),
        ("task: [g]", "g"),
        ("task: [{task: fresh, dataset_path: json, doc_to_text: q}]", "no split to evaluate"),
    ],
)
def test_a_group_that_makes_no_sense_is_refused(
    write: Write, chosen: Chosen, text: str, message: str
) -> None:
    write("tasks/g.yaml", f"group: g\n{text}\n")
    with pytest.raises(AssayError, match=message):
        chosen("g")


def test_groups_that_contain_each_other_are_refused(write: Write, chosen: Chosen) -> None:
    write("tasks/x.yaml", "group: x\ntask: [y]\n")
    write("tasks/y.yaml", "group: y\ntask: [x]\n")
    with pytest.raises(AssayError):
        chosen("x")


def test_one_task_cannot_be_asked_in_two_different_ways_at_once(write: Write, chosen: Chosen) -> None:
    """Otherwise one of them would silently report the other's numbers."""
    write("tasks/g.yaml", "group: g\nnum_fewshot: 5\ntask: [a]\n")
    with pytest.raises(AssayError, match="`a`"):
        chosen("a", "g")


def test_one_task_in_two_groups_in_the_same_way_is_asked_once(write: Write, chosen: Chosen) -> None:
    write("tasks/g.yaml", "group: g\ntask: [a, b]\n")
    write("tasks/h.yaml", "group: h\ntask: [b, c]\n")
    selection = chosen("g", "h")
    assert selection.requested == ["g", "h"]
    assert list(selection.tasks) == ["a", "b", "c"]


# --- files and folders -----------------------------------------------------------------------------


def test_a_file_may_be_named_by_its_path(write: Write, chosen: Chosen) -> None:
    path = write("mine/own.yaml", f"task: own\n{LEAST}")
    assert chosen(str(path), "a").requested == ["own", "a"]


def test_a_group_file_may_name_tasks_of_the_index(write: Write, chosen: Chosen) -> None:
    path = write("mine/g.yaml", "group: mine\ntask: [a, c]\n")
    assert chosen(str(path)).groups["mine"].members == ("a", "c")


def test_a_group_file_finds_its_members_beside_it(write: Write, chosen: Chosen) -> None:
    write("mine/one.yaml", f"task: one\n{LEAST}")
    write("mine/a.yaml", f"task: a\ntag: own\n{LEAST}")
    write("mine/deep/two.yaml", f"task: two\ntag: own\n{LEAST}")
    write("mine/broken.yaml", "task: [")
    path = write("mine/g.yaml", "group: mine\ntask: [one, own, b]\n")
    selection = chosen(str(path))
    assert selection.groups["mine"].members == ("one", "a", "two", "b")
    assert selection.tasks["a"].path == str(path.parent / "a.yaml")


def test_a_folder_stands_for_every_task_file_in_it(write: Write, chosen: Chosen) -> None:
    write("mine/two.yaml", f"task: two\n{LEAST}")
    path = write("mine/deep/one.yaml", f"task: one\n{LEAST}").parent.parent
    write("mine/template.yaml", LEAST)
    assert chosen(f"{path}/").requested == ["one", "two"]


def test_a_folder_with_a_group_and_its_tasks_needs_no_index(write: Write, chosen: Chosen) -> None:
    write("mine/all.yaml", "group: mine\ntask: [one]\n")
    path = write("mine/one.yaml", f"task: one\n{LEAST}").parent
    assert chosen(f"{path}/").groups["mine"].members == ("one",)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("template.yaml", LEAST, "defines neither"),
        ("broken.yaml", "task: [\n", "not valid YAML"),
        ("wrong.yaml", "task: x\n", "2 problems"),
    ],
)
def test_a_file_that_is_no_task_is_refused(
    write: Write, chosen: Chosen, name: str, content: str, message: str
) -> None:
    path = write(f"mine/{name}", content)
    with pytest.raises(AssayError) as caught:
        chosen(str(path))
    assert message in caught.value.what


def test_a_file_or_folder_that_is_not_there_is_refused(chosen: Chosen, tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="cannot read"):
        chosen(str(tmp_path / "nowhere.yaml"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UnknownName, match="no task file"):
        chosen(f"{tmp_path}/empty")


# --- unknown names ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("math_ad", "`math_add`"),
        ("smal", "`small`"),
        ("zzzzzz", "assay ls tasks"),
        ("zz*", "assay ls"),
        ("", ""),
        ("~zz", ""),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_one(chosen: Chosen, word: str, hint: str) -> None:
    with pytest.raises(UnknownName) as caught:
        chosen(word)
    assert caught.value.where == "--tasks"
    assert hint in caught.value.hint


def test_everything_unknown_and_broken_is_reported_at_once(write: Write, chosen: Chosen) -> None:
    write("tasks/bad.yaml", f"task: bad\nrepeats: x\nnonsense: 1\n{LEAST}")
    with pytest.raises(ErrorGroup) as caught:
        chosen("nowhere", "a", "bad", "elsewhere")
    assert [problem.what.partition("`")[2].partition("`")[0] for problem in caught.value.errors] == [
        "nowhere",
        "nonsense",
        "repeats",
        "elsewhere",
    ]


def test_a_group_whose_members_lack_their_template_tells_which_file_is_missing(
    write: Write, chosen: Chosen
) -> None:
    write("tasks/part.yaml", "task: part\ninclude: _template\n")
    write("tasks/whole.yaml", "group: whole\ntask: [part]\n")
    with pytest.raises(AssayError, match="included file not found: `_template`"):
        chosen("whole")


def test_asking_for_what_a_broken_file_might_define_tells_what_is_wrong_with_it(
    write: Write, chosen: Chosen
) -> None:
    write("tasks/wip.yaml", "task: wip\nrepeats: [\n")
    with pytest.raises(TaskError, match="not valid YAML"):
        chosen("wip")
    assert chosen("a").requested == ["a"], "it is in nobody else's way"


TASK = "task: sums\ntag: easy\ndataset_path: json\ndataset_kwargs: {data_files: x.jsonl}\ntest_split: train\ndoc_to_target: a\n"


@pytest.fixture
def both(write: Write, tmp_path: Path) -> TaskIndex:
    """Two harnesses with a task and a group of the same name."""
    for folder, text in (("a/lmms_eval", "one"), ("b/lm_eval", "two")):
        write(f"{folder}/tasks/sums.yaml", f"{TASK}doc_to_text: {text}\n")
        write(f"{folder}/tasks/all.yaml", "group: all\ntask: [sums]\n")
    return TaskIndex.build(find_task_roots([str(tmp_path / "a"), str(tmp_path / "b")]))


@pytest.mark.parametrize(
    ("word", "expected", "notes"),
    [
        ("sums", "two", 1),
        ("lm_eval/sums", "two", 0),
        ("lmms_eval/sums", "one", 0),
        ("lmms_eval/su*", "one", 0),
        ("all", "two", 1),
        ("lmms_eval/all", "one", 0),
        ("easy", "two", 1),
        ("lmms_eval/easy", "one", 0),
    ],
)
def test_a_prefix_says_whose_task_is_meant_and_a_bare_name_says_which_was_taken(
    both: TaskIndex, word: str, expected: str, notes: int
) -> None:
    selection = select_tasks([word], both)
    assert selection.tasks["sums"].doc_to_text == expected
    assert len(selection.notes) == notes


@pytest.mark.parametrize("word", ["lm_eval/nothing", "assay/sums", "lmms_eval/x*"])
def test_a_prefix_finds_nothing_elsewhere(both: TaskIndex, word: str) -> None:
    with pytest.raises(UnknownName, match=re.escape(word)):
        select_tasks([word], both)


def test_a_tag_with_a_prefix_has_the_tasks_of_that_root_only(write: Write, tmp_path: Path) -> None:
    write("a/lmms_eval/tasks/sums.yaml", TASK)
    write("b/lm_eval/tasks/sums.yaml", TASK)
    write("b/lm_eval/tasks/more.yaml", TASK.replace("task: sums", "task: more"))
    index = TaskIndex.build(find_task_roots([str(tmp_path / "a"), str(tmp_path / "b")]))
    assert list(select_tasks(["lmms_eval/easy"], index).tasks) == ["sums"]
    selection = select_tasks(["easy"], index)
    assert sorted(selection.tasks) == ["more", "sums"]
    assert "`lmms_eval/easy` for the others" in selection.notes[0]


def test_a_member_defined_in_place_may_include_a_file(write: Write, chosen: Callable[..., Selection]) -> None:
    write("tasks/_base_yaml", f"{LEAST}doc_to_text: included\n")
    write(
        "tasks/g.yaml",
        "group: g\ntask:\n  - task: inline\n    include: _base_yaml\n    doc_to_target: own\n",
    )
    spec = chosen("g").tasks["g::inline"]
    assert (spec.doc_to_text, spec.doc_to_target, spec.test_split) == ("included", "own", "test")


def test_a_group_defined_in_place_may_have_the_name_of_a_tag(
    write: Write, chosen: Callable[..., Selection]
) -> None:
    write("tasks/g.yaml", "group: g\ntask:\n  - group: small\n    task: [small]\n")
    selection = chosen("g")
    assert selection.leaves("g") == ["a", "b"]
    assert list(selection.groups) == ["g::small", "g"]


# --- groups of older versions --------------------------------------------------------------------------


def test_a_group_that_lists_a_task_again_with_other_settings_numbers_it(write: Write, chosen: Chosen) -> None:
    write(
        "tasks/g.yaml",
        "group: g\ntask:\n"
        "  - {task: a, doc_to_text: one}\n  - {task: a, doc_to_text: two}\n"
        "  - {task: a, doc_to_text: two}\n  - {task: a, doc_to_text: three}\n",
    )
    selection = chosen("g")
    texts = {name: spec.doc_to_text for name, spec in selection.tasks.items()}
    assert texts == {"a": "one", "a-1": "two", "a-2": "three"}
    assert selection.leaves("g") == ["a", "a-1", "a-2"]
    assert chosen("a-2").tasks["a-2"].doc_to_text == "three"
    with pytest.raises(UnknownName, match="`a-3`"):
        chosen("a-3")


def test_a_member_that_names_a_task_may_include_a_file(write: Write, chosen: Chosen) -> None:
    write("tasks/_base_yaml", "doc_to_text: included\ntarget_delimiter: included\n")
    write("tasks/g.yaml", "group: g\ntask:\n  - {task: a, include: _base_yaml, target_delimiter: own}\n")
    spec = chosen("g").tasks["a"]
    assert (spec.doc_to_text, spec.target_delimiter, spec.test_split) == ("included", "own", "test")


PROMPTS = 'prompts:\n  short: {doc_to_text: "{{q}}", doc_to_target: x}\n  long: {doc_to_text: "Q: {{q}}", doc_to_target: x}\n'


def test_a_member_with_a_pattern_of_prompts_is_a_task_for_each(write: Write, chosen: Chosen) -> None:
    write("tasks/prompts/p.yaml", PROMPTS)
    write("tasks/_base_yaml", "output_type: loglikelihood\ntest_split: test\n")
    write(
        "tasks/g.yaml",
        "group: g\ntask:\n"
        "  - {task: a, include: _base_yaml, dataset_path: other, use_prompt: 'prompts/p.yaml:*'}\n"
        "  - {include: _base_yaml, dataset_path: glue, dataset_name: rte, use_prompt: 'prompts/p.yaml:s*'}\n",
    )
    selection = chosen("g")
    assert list(selection.tasks) == ["a_p.yaml:long", "a_p.yaml:short", "glue_rte_p.yaml:short"]
    spec = selection.tasks["a_p.yaml:long"]
    assert (spec.use_prompt, spec.output_type.value, spec.dataset_path) == (
        "prompts/p.yaml:long",
        "generate_until",
        "other",
    )
    assert spec.tags == (), "the member does not name the task `a` of the index"
    for name in ("a_p.yaml:short", "glue_rte_p.yaml:short"):
        assert chosen(name).requested == [name]


@pytest.mark.parametrize(
    ("use_prompt", "part"),
    [("p.yaml:none*", "unknown prompt: `none*`"), ("gone.yaml:*", "cannot read the prompts in `gone.yaml`")],
)
def test_a_pattern_without_prompts_is_refused(
    write: Write, chosen: Chosen, use_prompt: str, part: str
) -> None:
    write("tasks/prompts/p.yaml", PROMPTS)
    write("tasks/prompts/g.yaml", f"group: g\ntask:\n  - {{dataset_path: x, use_prompt: '{use_prompt}'}}\n")
    with pytest.raises(TaskError, match=re.escape(part)) as caught:
        chosen("g")
    assert caught.value.where.endswith("g.yaml:3")


def test_a_group_in_another_folder_needs_all_its_members(write: Write, chosen: Chosen) -> None:
    write("tasks/some.yaml", "group: some\ntask: [gone, a]\n")
    with pytest.raises(UnknownName, match="`gone`"):
        chosen("some")


def test_a_group_file_without_members_leaves_its_name_to_the_tag(write: Write, chosen: Chosen) -> None:
    write("tasks/small.yaml", "group: small\naggregate_metric_list: [{metric: acc}]\n")
    write("tasks/g.yaml", "group: g\ntask: [small]\n")
    assert chosen("small").requested == ["a", "b"]
    assert chosen("g").leaves("g") == ["a", "b"]


def test_a_task_file_may_begin_with_a_byte_order_mark(write: Write, chosen: Chosen) -> None:
    write("tasks/_base_yaml", LEAST)
    write("tasks/marked.yaml", b"\xef\xbb\xbftask: marked\ninclude: _base_yaml\n")
    assert chosen("marked").tasks["marked"].test_split == "test"
