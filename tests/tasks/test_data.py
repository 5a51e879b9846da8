from __future__ import annotations

import json

import pytest

from helpers.data import labelled_rows, write_csv
from probescale.config import DataConfig, ProbeConfig, TaskConfig
from probescale.errors import Problems, UserError
from probescale.tasks.data import Examples, TaggedSentences
from probescale.tasks.labelled import load_examples, load_tagged
from probescale.tasks.sampling import sample, split, without_repeats, without_texts
from probescale.tasks.task import load_task


def examples(rows):
    names = tuple(sorted({label for _, label in rows}))
    return Examples(tuple(t for t, _ in rows), None, tuple(names.index(label) for _, label in rows), names)


def load(tmp_path, rows, **options):
    return load_examples(DataConfig(source=str(write_csv(tmp_path / "a.csv", rows))), field="task.train", **options)


def test_labels_are_numbered_in_order_of_their_names(tmp_path):
    found = load(tmp_path, [("a b", "10"), ("c d", "9"), ("e f", "9")])
    assert (found.names, found.labels) == (("9", "10"), (1, 0, 0))


def test_labels_can_be_given_names(tmp_path):
    found = load(tmp_path, [("a b", "0"), ("c d", "1")], rename={"0": "negative", "1": "positive"})
    assert found.names == ("negative", "positive")


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([("a", "1"), ("b", "1")], 'one class only: "1"'),
        ([("1", "a"), ("2.5", "b")], r"holds numbers \(first: 1\), not text"),
        ([("a", "1"), ("", "0")], "1 rows without text, first in row 2"),
        ([("a", "1"), ("b", "")], "1 rows without a label, first in row 2"),
        ([(f"text {i}", f"{i}.5") for i in range(30)], "30 different values in 30 rows: these are no classes"),
    ],
)
def test_data_that_cannot_be_learned_from(tmp_path, rows, says):
    with pytest.raises(UserError, match=says):
        load(tmp_path, rows)


def test_a_label_unseen_in_train(tmp_path):
    with pytest.raises(UserError, match='label "2" in row 2 does not occur in train'):
        load(tmp_path, [("a", "1"), ("b", "2")], names=("0", "1"))


def test_repeats_and_dev_rows_leave_train():
    train = examples([("a", "0"), ("b", "1"), ("a", "0"), ("c", "1"), ("d", "0")])
    dev = examples([("c", "1"), ("x", "0")])
    assert without_repeats(train, dev).texts == ("a", "b", "d")


def test_case_and_blanks_do_not_hide_a_repeat():
    train = examples([("Good  film ", "0"), ("bad film", "1"), ("good film", "0")])
    assert without_repeats(train, examples([("BAD film", "1"), ("x", "0")])).texts == ("Good  film ",)


def test_of_rows_that_contradict_each_other_the_majority_is_kept():
    """In any order: not the first label, and not the last."""
    rows = [("a", "0"), ("tie", "0"), ("A ", "1"), ("b", "1"), ("tie", "1"), ("a", "1")]
    for order in (rows, rows[::-1]):
        kept = without_repeats(examples(order))
        assert dict(zip(kept.texts, kept.labels, strict=True)) in ({"A ": 1, "b": 1}, {"a": 1, "b": 1})


@pytest.mark.parametrize("kind", ["class", "number", "tags"])
def test_contradictions_are_counted_and_shown(tmp_path, kind):
    rows = [(f"word{n} said so", "01"[n % 2]) for n in range(30)]
    more = [("word3 SAID so", "0"), ("word3 said so", "1"), ("word4 said so", "1")]
    if kind == "tags":
        train, dev = (
            [f"{text.replace(' ', '/B-X ')}/{'IB'[int(label)]}-X" for text, label in part] for part in (rows, more)
        )
        sources = [conll(tmp_path / f"{name}.conll", part) for name, part in (("train", train), ("dev", dev))]
    else:
        sources = [DataConfig(source=str(write_csv(tmp_path / f"{len(part)}.csv", part))) for part in (rows, more)]
    task = load_task(TaskConfig(kind=kind, train=sources[0], dev=sources[1]), seed=0)
    assert task.contradictions
    assert (task.contradictions.texts, task.contradictions.rows) == (2, 5)
    sentence = task.contradictions.sentence()
    assert sentence.startswith("2 texts have different labels in 5 rows of train and dev: ")
    assert '"word3 said so" is ' in sentence
    assert "more than half of its rows" in sentence
    assert len(task.dev) == 3, "dev stays as it is"


def test_without_contradictions_nothing_is_said(tmp_path):
    rows = labelled_rows(40)
    task = load_task(TaskConfig(train=DataConfig(source=str(write_csv(tmp_path / "a.csv", [*rows, *rows])))), seed=0)
    assert (task.repeats, task.contradictions) == (40, None)


def test_the_loaded_task_has_no_dev_rows_in_train(tmp_path):
    rows = labelled_rows(40)
    train, dev = write_csv(tmp_path / "train.csv", rows), write_csv(tmp_path / "dev.csv", rows[:10])
    task = load_task(TaskConfig(train=DataConfig(source=str(train)), dev=DataConfig(source=str(dev))), seed=0)
    assert (len(task.train), task.repeats) == (30, 10)
    assert set(task.train.inputs).isdisjoint(task.dev.inputs)


def test_train_and_dev_must_both_be_pairs(tmp_path):
    source = str(write_csv(tmp_path / "a.csv", labelled_rows(40)))
    config = TaskConfig(train=DataConfig(source=source, pair="text"), dev=DataConfig(source=source))
    with pytest.raises(UserError, match="both"):
        load_task(config, seed=0)


def test_pairs_repeat_only_when_both_texts_do():
    train = Examples(("q", "q", "q"), ("s", "t", "s"), (0, 1, 0), ("n", "y"))
    assert without_repeats(train).pairs == ("s", "t")


def test_split_and_sample_are_stratified_and_follow_the_seed():
    data = examples([(f"text {i}", "rare" if i % 10 == 0 else "common") for i in range(200)])
    first, second = split(data, 0.2, seed=1)
    assert sum(second.labels) == 4 or sum(second.labels) == 36
    assert set(first.texts).isdisjoint(second.texts)
    assert split(data, 0.2, seed=1)[1] == second
    assert split(data, 0.2, seed=2)[1] != second
    assert len(sample(data, 50, seed=0)) == 50
    assert sample(data, 500, seed=0) is data


def test_the_fingerprint_follows_the_content():
    one = examples(labelled_rows(20))
    assert one.fingerprint == examples(labelled_rows(20)).fingerprint
    assert one.fingerprint != one.take(range(19)).fingerprint


def test_without_dev_a_part_of_train_is_set_aside(tmp_path):
    source = str(write_csv(tmp_path / "a.csv", labelled_rows(100)))
    task = load_task(TaskConfig(train=DataConfig(source=source)), seed=0)
    assert (len(task.train), len(task.dev)) == (80, 20)
    assert set(task.train.inputs).isdisjoint(task.dev.inputs)
    assert "held out" in task.dev_split


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ([1, "1", 1.0, " 1 ", "1.0", 0, "0", "0.0"], ("0", "1")),
        (["--1", "²", "--1", "²"], ("--1", "²")),
        ([True, False, True, False], ("False", "True")),
        (["9" * 5000, "1", "9" * 5000, "1"], ("1", "9" * 5000)),
    ],
)
def test_label_values_of_any_kind(tmp_path, values, names):
    rows = [json.dumps({"text": f"text {i}", "label": value}) for i, value in enumerate(values)]
    (tmp_path / "a.jsonl").write_text("\n".join(rows))
    assert load_examples(DataConfig(source=str(tmp_path / "a.jsonl")), field="x").names == names


def test_rows_without_any_of_several_labels(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "a", "label": []}\n{"text": "b", "label": []}\n')
    with pytest.raises(UserError, match="holds no label"):
        load_examples(DataConfig(source=str(tmp_path / "a.jsonl")), field="x", target="multi")


def test_a_number_that_is_too_large_for_one(tmp_path):
    (tmp_path / "a.jsonl").write_text(f'{{"text": "a", "label": 1}}\n{{"text": "b", "label": {10**400}}}\n')
    with pytest.raises(UserError, match="1 rows without a number, first in row 2") as error:
        load_examples(DataConfig(source=str(tmp_path / "a.jsonl")), field="x", target="number")
    assert len(str(error.value)) < 1000


def test_an_error_does_not_repeat_a_whole_file(tmp_path):
    (tmp_path / "a.csv").write_text("A" * 100_000 + ",label\na,b\n")
    with pytest.raises(UserError, match='column "text" is not in') as error:
        load_examples(DataConfig(source=str(tmp_path / "a.csv")), field="x")
    assert len(str(error.value)) < 5000


@pytest.mark.parametrize("value", [float("nan"), None, [1], {"a": 1}])
def test_what_is_no_label(tmp_path, value):
    rows = [json.dumps({"text": f"text {i}", "label": label}) for i, label in enumerate([1, 0, value])]
    (tmp_path / "a.jsonl").write_text("\n".join(rows))
    with pytest.raises(UserError, match="1 rows without a label, first in row 3"):
        load_examples(DataConfig(source=str(tmp_path / "a.jsonl")), field="x")


def test_repeated_sentences_are_tagged_once(tmp_path):
    (tmp_path / "a.conll").write_text("The\tDT\nend\tNN\n\n" * 50 + "An\tDT\nend\tNN\n")
    tagged = load_tagged(DataConfig(source=str(tmp_path / "a.conll"), text=1, label=2), field="x")
    assert len(without_repeats(tagged)) == 2


def test_words_that_are_no_texts(tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": [["a", "b"]], "label": ["X"]}))
    with pytest.raises(UserError, match="words must be plain texts"):
        load_tagged(DataConfig(source=str(tmp_path / "a.jsonl")), field="x")


def test_a_tagging_probe_reads_conll(tmp_path):
    file = tmp_path / "a.conll"
    file.write_text("The\tDT\nend\tNN\n\nThe\tDT\nthe\tDT\n")
    found = load_tagged(DataConfig(source=str(file), text=1, label=2), field="x")
    assert found.words == (("The", "end"), ("The", "the"))
    assert found.names == ("DT", "NN")
    assert found.tags == ((0, 1), (0, 0))


def test_probes_that_do_not_fit_their_data(tmp_path):
    source = DataConfig(source=str(write_csv(tmp_path / "a.csv", labelled_rows(60))))
    for probe, says in [
        (ProbeConfig(name="p", pooling="token"), "needs data with one tag per word"),
        (ProbeConfig(name="p", pooling="token", data=source), "needs a list of words"),
        (ProbeConfig(name="p", pooling="sep"), "separator between two texts"),
    ]:
        with pytest.raises(UserError, match=says):
            load_task(TaskConfig(train=source, probes=(probe,)), seed=0)


def conll(path, sentences):
    """Words and tags of every sentence, as `word/tag word/tag`."""
    path.write_text("\n\n".join("\n".join(cell.replace("/", "\t") for cell in s.split()) for s in sentences) + "\n")
    return DataConfig(source=str(path), text=1, label=2)


def sentences(count):
    return [f"The/O {name}{i}/B-PER Smith/I-PER came/O" for i in range(count) for name in ("Ann", "Bob")][:count]


def test_a_tagging_task_has_no_dev_sentences_in_train_and_keeps_all_of_dev(tmp_path):
    train = conll(tmp_path / "train.conll", [*sentences(30), sentences(1)[0].replace("came", "CAME")])
    dev = conll(tmp_path / "dev.conll", [*sentences(10), sentences(1)[0]])
    task = load_task(TaskConfig(kind="tags", train=train, dev=dev), seed=0)
    assert (task.kind.name, task.metric) == ("tags", "entity_f1")
    assert (len(task.train), len(task.dev), task.repeats) == (20, 11, 11)
    assert set(task.train.inputs).isdisjoint(task.dev.inputs)
    assert task.gold.shape == (11,)
    assert task.gold[0] == (2, 0, 1, 2)
    assert task.measure(task.gold, task.gold) == 1
    assert task.probe_data["task"] is task.train
    assert task.fingerprints["train"] != task.fingerprints["dev"]


def test_probes_never_learn_from_texts_of_dev(tmp_path):
    """Whatever the form of their data: words set apart, one text of a pair, words that are exchanged afterwards."""
    rows = [(f"it isn't word{n}, it 's a plain sentence", "01"[n % 2]) for n in range(60)]
    train, dev = (write_csv(tmp_path / f"{name}.csv", part) for name, part in (("t", rows[:40]), ("d", rows[40:])))
    tagged = conll(
        tmp_path / "words.conll", [f"it/A is/B n't/A word{n},/B it/A 's/B a/A plain/B sentence/A" for n in range(60)]
    )
    texts = DataConfig(source=str(write_csv(tmp_path / "all.csv", rows)))
    probes = (
        ProbeConfig(name="words", pooling="token", data=tagged),
        ProbeConfig(name="shift", property="bigram_shift", data=texts),
        ProbeConfig(name="own", data=texts),
    )
    config = TaskConfig(train=DataConfig(source=str(train)), dev=DataConfig(source=str(dev)), probes=probes)
    task = load_task(config, seed=0)
    assert {name: len(data) for name, data in task.probe_data.items()} == {"words": 40, "shift": 40, "own": 40}
    held_out = task.with_validation(0.2, seed=0)
    assert {name: len(data) for name, data in held_out.probe_data.items()}["words"] == 32
    pairs = Examples(("q", "q2"), (rows[0][0], rows[1][0]), (0, 1), ("n", "y"))
    assert len(without_texts(load_tagged(tagged, field="x"), pairs)) == 58


def test_a_tagging_task_without_dev_sets_sentences_aside(tmp_path):
    config = TaskConfig(kind="tags", train=conll(tmp_path / "a.conll", sentences(50)), max_train=20)
    task = load_task(config, seed=0)
    assert (len(task.train), len(task.dev)) == (20, 10)
    assert isinstance(task.train, TaggedSentences)
    assert load_task(config, seed=1).dev != task.dev


def test_tags_of_dev_that_train_does_not_have(tmp_path):
    train = conll(tmp_path / "train.conll", sentences(20))
    dev = conll(tmp_path / "dev.conll", ["In/O Rome/B-LOC"])
    with pytest.raises(UserError, match=r'task\.dev\.label: label "B-LOC" in tagged word 2 does not occur in train'):
        load_task(TaskConfig(kind="tags", train=train, dev=dev), seed=0)
    named = TaskConfig(kind="tags", train=train, dev=dev, labels={"B-LOC": "B-PER"})
    assert load_task(named, seed=0).gold.tolist() == [(2, 0)]


def test_words_without_a_tag_have_none_in_gold(tmp_path):
    rows = [json.dumps({"text": ["a", "b", str(i)], "label": ["X", None, "Y"]}) for i in range(20)]
    (tmp_path / "a.jsonl").write_text("\n".join(rows))
    task = load_task(TaskConfig(kind="tags", train=DataConfig(source=str(tmp_path / "a.jsonl"))), seed=0)
    assert task.gold[0] == (0, -1, 1)
    assert task.metric == "tag_accuracy"


def test_a_task_on_numbers(tmp_path):
    rows = [(text, str(i / 7)) for i, (text, _) in enumerate(labelled_rows(60))]
    source = DataConfig(source=str(write_csv(tmp_path / "a.csv", rows)))
    task = load_task(TaskConfig(kind="number", train=source, metric="r2"), seed=0)
    assert (task.kind.name, task.metric, task.train.names) == ("number", "r2", ())
    assert task.gold.dtype == float
    assert task.measure(task.gold, task.gold) == 1


@pytest.mark.parametrize(("kind", "values"), [("tags", "2 tags"), ("number", "5 different numbers")])
def test_too_few_rows_of_any_kind(tmp_path, kind, values):
    train = conll(tmp_path / "a.conll", [f"a/X b{i}/Y" for i in range(5)])
    if kind == "number":
        train = DataConfig(source=str(write_csv(tmp_path / "a.csv", [(f"text {i}", str(i)) for i in range(5)])))
    with pytest.raises(UserError, match=f"only 5 usable training .* with {values} remain"):
        load_task(TaskConfig(kind=kind, train=train), seed=0)


def test_what_does_not_go_with_a_kind_is_listed_at_once(tmp_path):
    train = conll(tmp_path / "a.conll", sentences(20)).model_copy(update={"pair": "3"})
    probes = (ProbeConfig(name="a", pooling="mean"), ProbeConfig(name="b", pooling="token_mean"))
    with pytest.raises(Problems) as error:
        load_task(TaskConfig(kind="tags", train=train, metric="spearman", probes=probes), seed=0)
    assert [problem.field for problem in error.value.problems] == [
        "task.train.pair",
        "task.probes.0.pooling",
        "task.metric",
    ]
    assert "use token or token_mean" in str(error.value)
    with pytest.raises(Problems, match=r"task\.labels"):
        load_task(TaskConfig(kind="number", train=train, labels={"0": "no"}), seed=0)


@pytest.mark.parametrize("words", [["", "a"], ["a", "", "b"], ["a", " "]])
def test_an_empty_word_is_refused(tmp_path, words):
    """At the beginning it ended in an OverflowError; elsewhere it was left out, and nobody was told."""
    rows = [{"words": ["a", "b"], "tags": ["x", "y"]}, {"words": words, "tags": ["x"] * len(words)}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    data = DataConfig(source=str(tmp_path / "a.jsonl"), text="words", label="tags")
    with pytest.raises(UserError, match="sentence 2 has an empty word"):
        load_tagged(data, field="task.train")


def test_rows_of_many_labels_are_read_in_linear_time(tmp_path):
    """Every label was looked up in a list of all of them."""
    rows = [{"text": f"text {n}", "label": [f"l{n % 10_000}", f"l{(n + 1) % 10_000}"]} for n in range(20_000)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    read = load_examples(DataConfig(source=str(tmp_path / "a.jsonl")), field="task.train", target="multi")
    assert len(read.names) == 10_000
    assert [read.names[number] for number in read.labels[7]] == ["l7", "l8"]


@pytest.mark.slow
def test_a_large_dev_set_is_drawn_from_and_none_of_it_is_learned(tmp_path):
    rows = [(f"a text of number {n}", "ab"[n % 2]) for n in range(100_000)]
    dev = write_csv(tmp_path / "dev.csv", rows)
    train = write_csv(tmp_path / "train.csv", [*rows[:50], *((f"other {n}", "ab"[n % 2]) for n in range(60))])
    config = TaskConfig(train=str(train), dev=str(dev), max_dev=1000)  # type: ignore[arg-type]
    task = load_task(config, 0)
    assert (len(task.dev), task.dev_split) == (1000, "dev (drawn from 100,000)")
    assert len(task.train) == 60, "rows of dev are not learned, whether they are drawn or not"
    assert load_task(config, 0).dev == task.dev


def test_a_cap_for_dev_leaves_more_rows_to_train(tmp_path):
    source = str(write_csv(tmp_path / "a.csv", labelled_rows(200)))
    task = load_task(TaskConfig(train=source, max_dev=10), 0)  # type: ignore[arg-type]
    assert (len(task.train), len(task.dev), task.dev_split) == (190, 10, "held out (5% of train)")


def test_a_label_cannot_be_renamed_to_nothing(tmp_path):
    with pytest.raises(UserError, match="a label has an empty name"):
        load(tmp_path, [("a b", "x"), ("c d", "y"), ("e f", "y"), ("g h", "x")], rename={"x": " "})
