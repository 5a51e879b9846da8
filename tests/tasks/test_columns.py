"""The columns of a table are found by names and contents; what is not certain is one error that says what to give."""

from __future__ import annotations

import csv
import datetime
import gzip
import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from probescale.errors import Problems, UserError
from probescale.tasks.columns import Layout, find_layout, find_text_column

N = 24
TEXTS = [f"the film number {n} was quite long" for n in range(N)]
MORE = [f"another sentence about scene {n}" for n in range(N)]
CLASSES = ["good", "bad", "so so"] * (N // 3)
STARS = [1, 2, 3, 4, 5, 5] * (N // 6)
SCORES = [n / 7 for n in range(N)]
DATES = [f"2024-01-{n + 1:02} 10:00:00" for n in range(N)]
WORDS = [["EU", "rejects", f"call{n}"] for n in range(N)]
TAGS = [["B-ORG", "O", "O"]] * N
Columns = dict[str, list]


def write(path: Path, columns: Columns) -> str:
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    elif path.suffix == ".parquet":
        parquet.write_table(pa.table(columns), path)
    else:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, delimiter="\t" if path.suffix == ".tsv" else ",")
            writer.writerows([list(columns), *zip(*columns.values(), strict=True)])
    return str(path)


def refused(source: str, **given) -> UserError:
    with pytest.raises(UserError) as error:
        find_layout(source, **given)
    return error.value


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.parquet"])
def test_every_file_type(tmp_path, name):
    layout = find_layout(write(tmp_path / name, {"id": list(range(N)), "review": TEXTS, "stars": STARS}))
    assert layout == Layout("class", "review", None, "stars")
    assert layout.describe() == "text: `review`, label: `stars` (5 classes)"


def test_gzip(tmp_path):
    plain = Path(write(tmp_path / "a.csv", {"text": TEXTS, "label": CLASSES}))
    packed = tmp_path / "b.csv.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert find_layout(str(packed)) == Layout("class", "text", None, "label")


@pytest.mark.parametrize("text", ["Text", "reviewText", "Review Body", "tweet", "utterance", "comment_text", "message"])
@pytest.mark.parametrize("label", ["LABEL", "target", "Class Index", "airline_sentiment", "intent", "label_text", "y"])
def test_names_in_any_spelling(tmp_path, text, label):
    columns = {"Unnamed: 0": list(range(N)), text: TEXTS, "lang": ["en", "de"] * (N // 2), label: CLASSES}
    assert find_layout(write(tmp_path / "a.csv", columns)) == Layout("class", text, None, label)


def test_names_count_more_than_contents(tmp_path):
    """Locations look like texts and key words like classes, but one column is called text and one target."""
    places = [f"New Town {n}" for n in range(N)]
    columns = {"keyword": CLASSES, "location": places, "text": TEXTS, "target": ["0", "1"] * (N // 2)}
    assert find_layout(write(tmp_path / "a.csv", columns)) == Layout("class", "text", None, "target")


def test_contents_without_known_names(tmp_path):
    columns = {"group": CLASSES, "what they said": TEXTS}
    assert find_layout(write(tmp_path / "a.csv", columns)) == Layout("class", "what they said", None, "group")


def test_texts_without_spaces(tmp_path):
    columns = {"0": [f"这部电影非常好看第{n}次" for n in range(N)], "1": CLASSES}
    assert find_layout(write(tmp_path / "a.csv", columns)) == Layout("class", "0", None, "1")


@pytest.mark.parametrize(
    "ignored",
    [
        {"id": [f"a long id {n}" for n in range(N)]},
        {"promptID": CLASSES},
        {"idx": STARS},
        {"split": ["train", "dev"] * (N // 2)},
        {"source": CLASSES},
        {"created_at": CLASSES},
        {"when": DATES},
        {"position": list(range(7, N + 7))},
        {"empty": [""] * N},
        {"nearly empty": ["x", "y", "x", "y", *[""] * (N - 4)]},
        {"constant": ["en"] * N},
    ],
)
def test_columns_to_ignore(tmp_path, ignored):
    columns = {**ignored, "said": TEXTS, "group": CLASSES}
    assert find_layout(write(tmp_path / "a.csv", columns)) == Layout("class", "said", None, "group")


def test_dates_of_parquet_are_ignored(tmp_path):
    days = [datetime.date(2024, 1, n + 1) for n in range(N)]
    columns = {"day seen": days, "said": TEXTS, "group": CLASSES}
    assert find_layout(write(tmp_path / "a.parquet", columns)) == Layout("class", "said", None, "group")


def test_a_column_called_label_is_the_label(tmp_path):
    columns = {"text": TEXTS, "rating": STARS, "label": CLASSES, "label_text": CLASSES}
    assert find_layout(write(tmp_path / "a.csv", columns)).label == "label"


# Numbers and classes


@pytest.mark.parametrize(
    ("values", "kind", "says"),
    [
        ([0, 1] * 60, "class", "2 classes"),
        ([0.0, 1.0] * 60, "class", "2 classes"),
        ([-1, 0, 1] * 40, "class", "3 classes"),
        ([True, False] * 60, "class", "2 classes"),
        ([n % 20 for n in range(120)], "class", "20 classes"),
        ([n % 5 / 2 for n in range(120)], "number", "numbers from 0 to 2"),
        ([n % 30 * 3 for n in range(120)], "number", "numbers from 0 to 87"),
        ([n * 7 % 120 for n in range(120)], "number", "numbers from 0 to 119"),
        (["4.5", "n/a", *[str(n) for n in range(118)]], "number", "numbers from 0 to 117"),
    ],
)
def test_classes_or_numbers(tmp_path, values, kind, says):
    columns = {"text": [f"a text {n}" for n in range(120)], "target": values}
    layout = find_layout(write(tmp_path / "a.jsonl", columns))
    assert layout.kind == kind
    assert layout.describe() == f"text: `text`, label: `target` ({says})"


def test_many_whole_numbers_that_repeat(tmp_path):
    texts = [f"a text {n}" for n in range(2400)]
    for name, different, kind in (("target", 40, "class"), ("score", 101, "number")):
        columns = {"text": texts, name: [n % different for n in range(2400)]}
        assert find_layout(write(tmp_path / "a.csv", columns)).kind == kind
    unsure = write(tmp_path / "b.csv", {"text": texts, "target": [n % 101 for n in range(2400)]})
    error = refused(unsure)
    assert error.message == (
        'column "target" has 101 different whole numbers in 2,400 rows: they may be classes or quantities'
    )
    assert error.hint == "give --kind class or --kind number"
    assert find_layout(unsure, kind="class").describe() == "text: `text`, label: `target` (101 classes)"
    assert find_layout(unsure, kind="number").kind == "number"


# Pairs


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("premise", "hypothesis"),
        ("sentence1", "sentence2"),
        ("Sentence_A", "Sentence_B"),
        ("text_a", "text_b"),
        ("question1", "question2"),
        ("#1 String", "#2 String"),
        ("question", "sentence"),
        ("query", "passage"),
        ("text", "pair"),
        ("s1", "s2"),
    ],
)
def test_known_pairs(tmp_path, first, second):
    columns = {"idx": list(range(N)), second: MORE, first: TEXTS, "label": SCORES}
    layout = find_layout(write(tmp_path / "a.tsv", columns))
    assert layout == Layout("number", first, second, "label")
    assert layout.describe() == f"texts: `{first}` and `{second}`, label: `label` (numbers from 0 to 3.28571)"


def test_a_known_pair_among_many_columns(tmp_path):
    """The columns of MNLI as it is distributed: trees look like texts, and each annotator's label like a label."""
    columns = {"index": list(range(N)), "promptID": STARS, "pairID": TEXTS, "genre": CLASSES}
    columns |= {f"sentence{n}_parse": [f"(ROOT (S {text}))" for text in TEXTS] for n in (1, 2)}
    columns |= {"sentence1": TEXTS, "sentence2": MORE, "label1": CLASSES, "label2": CLASSES, "gold_label": CLASSES}
    layout = find_layout(write(tmp_path / "a.tsv", columns))
    assert layout == Layout("class", "sentence1", "sentence2", "gold_label")


def test_two_texts_that_are_no_known_pair(tmp_path):
    file = write(tmp_path / "a.csv", {"title": MORE, "body": TEXTS, "label": CLASSES})
    error = refused(file)
    assert str(error) == (
        'DATA: two columns could be the text: "title" and "body"\n'
        "  next: give --text title, or --text title --pair body for both"
    )
    assert find_layout(file, text="title") == Layout("class", "title", None, "label")
    assert find_layout(file, text="title", pair="body") == Layout("class", "title", "body", "label")
    assert find_layout(file, pair="body") == Layout("class", "title", "body", "label")


def test_a_title_and_a_text_of_unknown_name(tmp_path):
    error = refused(write(tmp_path / "a.csv", {"movie plot": TEXTS, "title": MORE, "label": CLASSES}))
    assert error.message == 'two columns could be the text: "title" and "movie plot"'
    assert error.hint == "give --text title, or --text title --pair 'movie plot' for both"


def test_three_texts(tmp_path):
    columns = {"title": [f"title of {n}" for n in range(N)], "question": MORE, "answer": TEXTS, "label": CLASSES}
    file = write(tmp_path / "a.csv", columns)
    error = refused(file)
    assert error.message == 'three columns could be the text: "title", "question" and "answer"'
    assert error.hint == "give --text question, or --text question --pair answer for two of them"
    assert find_layout(file, pair="answer") == Layout("class", "question", "answer", "label")


def test_a_pair_given_without_a_text_among_several(tmp_path):
    columns = {"title": TEXTS, "body": MORE, "comment": [f"no {n} then" for n in range(N)], "label": CLASSES}
    error = refused(write(tmp_path / "a.csv", columns), pair="comment")
    assert error.hint == "give --text title or --text body"


# What the user gives


def test_given_columns_are_taken_as_they_are(tmp_path):
    file = write(tmp_path / "a.csv", {"id": STARS, "text": TEXTS, "other": MORE, "label": CLASSES})
    assert find_layout(file, text="other", label="id") == Layout("class", "other", None, "id")
    assert find_layout(file, text="text", label="other", kind="class").label == "other"


def test_given_columns_that_do_not_exist(tmp_path):
    file = write(tmp_path / "a.csv", {"text": TEXTS, "label": CLASSES})
    error = refused(file, text="txt")
    assert error.field == "--text"
    assert error.message == f'column "txt" is not in {file}. Did you mean "text"?'
    assert error.hint == "use one of: text, label"
    both = refused(file, text="txt", label="lable")
    assert isinstance(both, Problems)
    assert "--text: column" in str(both)
    assert 'Did you mean "label"?' in str(both)


def test_one_column_in_two_roles(tmp_path):
    file = write(tmp_path / "a.csv", {"text": TEXTS, "label": CLASSES})
    assert refused(file, text="text", pair="text").message == 'column "text" is given as text and as pair'


def test_an_unknown_kind(tmp_path):
    error = refused(write(tmp_path / "a.csv", {"text": TEXTS, "label": CLASSES}), kind="numbr")
    assert error.field == "--kind"
    assert 'Did you mean "number"?' in error.message


def test_a_kind_narrows_the_labels(tmp_path):
    file = write(tmp_path / "a.csv", {"text": TEXTS, "topic": CLASSES, "score": SCORES})
    assert refused(file).hint == "give --label topic or --label score"
    assert find_layout(file, kind="number") == Layout("number", "text", None, "score")
    assert find_layout(file, kind="class") == Layout("class", "text", None, "topic")


# Labels that are not certain


@pytest.mark.parametrize("names", [("stars", "sentiment"), ("group", "part")])
def test_two_labels(tmp_path, names):
    file = write(tmp_path / "a.csv", {"text": TEXTS, names[0]: STARS, names[1]: CLASSES})
    error = refused(file)
    assert error.message == f'two columns could be the label: "{names[0]}" and "{names[1]}"'
    assert error.hint == f"give --label {names[0]} or --label {names[1]}"
    assert find_layout(file, label=names[1]) == Layout("class", "text", None, names[1])


def test_many_labels_are_not_all_listed(tmp_path):
    columns = {"text": TEXTS, **{f"aspect {n}": CLASSES for n in range(30)}}
    error = refused(write(tmp_path / "a.csv", columns))
    assert error.message.startswith('30 columns could be the label: "aspect 0", ')
    assert error.message.endswith('"aspect 6" and 23 more')


def test_no_label(tmp_path):
    error = refused(write(tmp_path / "a.csv", {"id": list(range(N)), "text": TEXTS}))
    assert error.message == 'no column looks like a label: the columns are "id" and "text"'
    assert error.hint.startswith("give --label NAME;")


def test_no_text(tmp_path):
    error = refused(write(tmp_path / "a.csv", {"size": SCORES, "label": CLASSES}))
    assert error.message == 'no column looks like a text: the columns are "size" and "label"'
    assert error.hint == "give --text NAME"


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (MORE, f"has {N} different values in {N} rows: neither classes nor numbers"),
        (["x"] * N, 'has the same value in every row: "x"'),
        ([""] * N, "is empty"),
    ],
)
def test_labels_that_are_none(tmp_path, values, says):
    file = write(tmp_path / "a.csv", {"text": TEXTS, "label": values})
    for given in ({}, {"label": "label"}):
        error = refused(file, **given)
        assert error.message == f'column "label" {says}'
        assert "--label NAME" in error.hint


def test_numbers_are_asked_for_and_there_are_none(tmp_path):
    file = write(tmp_path / "a.csv", {"text": TEXTS, "label": CLASSES})
    assert refused(file, kind="number").message == 'column "label" does not hold numbers'


@pytest.mark.parametrize("sign", ["|", ";", "; "])
def test_several_labels_in_one_text(tmp_path, sign):
    several = [f"good{sign}long", "long", "bad", f"bad{sign}long"] * (N // 4)
    file = write(tmp_path / "a.csv", {"text": TEXTS, "labels": several})
    assert find_layout(file, kind="class").describe() == "text: `text`, label: `labels` (4 classes)"
    assert find_layout(file).describe() == "text: `text`, label: `labels` (3 labels)"
    assert find_layout(file).kind == "labels"


def test_a_list_of_labels_per_text(tmp_path):
    file = write(tmp_path / "a.jsonl", {"text": TEXTS, "labels": [["joy"], ["fear", "joy"]] * (N // 2)})
    assert find_layout(file) == Layout("labels", "text", None, "labels")
    file = write(tmp_path / "b.csv", {"text": TEXTS, "topics": ["joy, fear", "joy"] * (N // 2)})
    assert find_layout(file, kind="labels").describe() == "text: `text`, label: `topics` (2 labels)"


def test_one_column_per_label(tmp_path):
    flags = {name: [str(int(n % every == 0)) for n in range(N)] for name, every in (("toxic", 2), ("rude", 3))}
    columns = {"text": TEXTS, **flags, "threat": ["true", "false"] * (N // 2)}
    file = write(tmp_path / "a.csv", columns)
    found = find_layout(file)
    assert found == Layout("labels", "text", None, ("toxic", "rude", "threat"))
    assert found.describe() == "text: `text`, labels: `toxic`, `rude` and `threat` (3 labels)"
    assert find_layout(file, label="toxic,rude").label == ("toxic", "rude")
    assert find_layout(file, label="toxic") == Layout("class", "text", None, "toxic")
    assert refused(file, label="toxic,ruder").message.startswith('column "ruder" is not in')
    assert refused(file, label="toxic,rude", kind="class").field == "--kind"
    two = write(tmp_path / "b.csv", {"text": TEXTS, **flags})
    assert find_layout(two).label == "toxic", "a name of labels decides, where two columns could be remarks"
    assert find_layout(two, kind="labels").label == ("toxic", "rude")
    named = write(tmp_path / "c.csv", {**columns, "label": CLASSES})
    assert find_layout(named) == Layout("class", "text", None, "label")


def test_a_class_with_a_semicolon_is_one_class(tmp_path):
    columns = {"text": TEXTS, "label": ["research; teaching", "sales", "sport"] * (N // 3)}
    assert find_layout(write(tmp_path / "a.csv", columns)) == Layout("class", "text", None, "label")


# Files that are not tables of texts and labels


@pytest.mark.parametrize(
    "first",
    [
        ("a nice film", "good"),  # a label that occurs further down
        ("the very first text of this file is here", "rare"),  # a sentence
        ("a nice film", "0.25"),  # a number above numbers
    ],
)
def test_a_file_without_header(tmp_path, first):
    labels = SCORES if first[1] == "0.25" else CLASSES
    file = write(tmp_path / "a.csv", {first[0]: TEXTS, first[1]: labels})
    error = refused(file)
    assert error.message == f'{file} looks as if it had no header: its first line is "{first[0]}" and "{first[1]}"'
    assert error.hint.startswith("give --no-header")
    assert find_layout(file, text=first[0], label=first[1]).label == first[1]
    layout = find_layout(file, header=False)
    assert (layout.text, layout.label, layout.header) == ("1", "2", False)
    assert layout.describe().startswith("text: column 1, label: column 2 (")


def test_only_delimited_files_can_lack_a_header(tmp_path):
    error = refused(write(tmp_path / "a.jsonl", {"text": TEXTS, "label": CLASSES}), header=False)
    assert (error.field, error.hint) == ("--no-header", "leave it out")


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.parquet"])
def test_columns_by_number(tmp_path, name):
    file = write(tmp_path / name, {"title": MORE, "body": TEXTS, "group": CLASSES})
    assert find_layout(file, text="2", label="3") == Layout("class", "body", None, "group")
    assert find_layout(file, text=1, pair="2", label=3) == Layout("class", "title", "body", "group")
    assert refused(file, text="4").message == f'column "4" is not in {file}.'
    assert "is given as text and as label" in refused(file, text="2", label="body").message


def test_a_header_of_numbers_is_a_header(tmp_path):
    """pandas writes it for a table without names."""
    file = write(tmp_path / "a.csv", {"0": TEXTS, "1": [0, 1] * (N // 2)})
    assert find_layout(file).describe() == "text: column 0, label: column 1 (2 classes)"


def test_one_column(tmp_path):
    file = write(tmp_path / "a.csv", {"text": TEXTS})
    error = refused(file)
    assert error.message == f'{file} has one column only: "text"'
    assert "--label NAME" in error.hint
    wrong = tmp_path / "b.csv"
    wrong.write_text("text;label\n" + "".join(f"{text};good\n" for text in TEXTS))
    assert 'separated by ";": save it with commas as .csv' in refused(str(wrong)).hint
    commas = tmp_path / "c.tsv"
    commas.write_text("text,label\n" + "".join(f"{text},good\n" for text in TEXTS))
    assert "separated by commas" in refused(str(commas)).hint


def test_messages_of_the_readers_are_kept(tmp_path):
    broken = tmp_path / "a.jsonl"
    broken.write_text('{"text": "a", "label": 1}\n{oops\n')
    error = refused(str(broken))
    assert error.field == "DATA"
    assert f"{broken} cannot be read: line 2 is not JSON" in error.message
    assert refused(str(tmp_path / "none.csv")).message.endswith("does not exist")
    assert refused(str(broken), split="dev", field="--data").field == "--data.split"


def test_empty_cells_are_left_to_the_readers(tmp_path):
    columns = {"text": [*TEXTS[:-1], ""], "label": ["", *CLASSES[1:]]}
    assert find_layout(write(tmp_path / "a.csv", columns)) == Layout("class", "text", None, "label")


def test_a_few_wrong_rows_are_left_to_the_readers(tmp_path):
    """They say which row it is."""
    file = write(tmp_path / "a.jsonl", {"review": [*TEXTS[:-1], 7], "stars": [*STARS[:-1], None]})
    assert find_layout(file) == Layout("class", "review", None, "stars")
    file = write(tmp_path / "b.jsonl", {"tokens": WORDS, "tags": [["O"], *TAGS[1:]]})
    assert find_layout(file) == Layout("tags", "tokens", None, "tags")
    file = write(tmp_path / "c.jsonl", {"tokens": [*WORDS[:-1], None], "tags": ["O", *TAGS[1:]]})
    assert find_layout(file) == Layout("tags", "tokens", None, "tags")


def test_texts_that_begin_with_a_date_are_texts(tmp_path):
    columns = {"said": [f"{date} we saw it" for date in DATES], "group": CLASSES}
    assert find_layout(write(tmp_path / "a.csv", columns)) == Layout("class", "said", None, "group")


def test_numbers_in_order_are_a_label_if_the_name_says_so(tmp_path):
    layout = find_layout(write(tmp_path / "a.csv", {"text": TEXTS, "score": list(range(N))}))
    assert layout == Layout("number", "text", None, "score")


# Tags


def write_conll(path: Path, lines: str) -> str:
    path.write_text(f"{lines}\n\n" * 8, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("name", ["a.conll", "a.txt"])
def test_conll(tmp_path, name):
    file = write_conll(tmp_path / name, "EU NNP B-NP B-ORG\nrejects VBZ B-VP O\ncalls NNS B-NP O")
    layout = find_layout(file)
    assert layout == Layout("tags", 1, None, 4)
    assert layout.describe() == "words: column 1, tags: column 4 (2 tags)"
    assert find_layout(file, label="2").describe() == "words: column 1, tags: column 2 (3 tags)"
    assert find_layout(file, text=2, label=3) == Layout("tags", 2, None, 3)
    assert refused(file, label="5").field == "--label"


def test_conll_with_numbered_words(tmp_path):
    universal = "1\tThe\tthe\tDET\tDT\t_\t2\tdet\t_\t_\n2\tdog\tdog\tNOUN\tNN\t_\t0\troot\t_\t_"
    assert find_layout(write_conll(tmp_path / "a.conll", universal)) == Layout("tags", 2, None, 4)
    assert find_layout(write_conll(tmp_path / "b.conll", "1 The DT\n2 dog NN")) == Layout("tags", 2, None, 3)


def test_conllu(tmp_path):
    lines = "1\tThe\tthe\tDET\tDT\tPronType=Art|VerbForm=Fin\t2\tdet\t_\t_\n2\tdog\tdog\tNOUN\tNN\t_\t0\troot\t_\t_"
    layout = find_layout(write_conll(tmp_path / "a.conllu", lines))
    assert layout == Layout("tags", "form", None, "upos")
    assert layout.describe() == "words: `form`, tags: `upos` (2 tags)"
    without = lines.replace("DET", "_").replace("NOUN", "_")
    assert find_layout(write_conll(tmp_path / "b.conllu", without)).label == "xpos"


def test_conll_of_one_column_or_without_tags(tmp_path):
    assert "one column only" in refused(write_conll(tmp_path / "a.txt", "EU\nrejects")).message
    error = refused(write_conll(tmp_path / "b.txt", "EU _\nrejects _"))
    assert error.message == 'column "2" has 1 different values for 16 words: these are no tags'


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
@pytest.mark.parametrize(("words", "tags"), [("tokens", "ner_tags"), ("words", "labels"), ("text", "tags"), ("a", "b")])
def test_columns_of_lists(tmp_path, name, words, tags):
    columns = {"id": list(range(N)), words: WORDS, tags: [[int(tag == "O") for tag in row] for row in TAGS]}
    assert find_layout(write(tmp_path / name, columns)) == Layout("tags", words, None, tags)


def test_two_columns_of_tags_or_words(tmp_path):
    file = write(tmp_path / "a.jsonl", {"tokens": WORDS, "pos_tags": TAGS, "ner_tags": TAGS})
    error = refused(file)
    assert error.message == 'two columns could be the tags: "pos_tags" and "ner_tags"'
    assert error.hint == "give --label pos_tags or --label ner_tags"
    assert find_layout(file, label="ner_tags") == Layout("tags", "tokens", None, "ner_tags")
    other = write(tmp_path / "b.jsonl", {"one": WORDS, "two": WORDS, "label": TAGS})
    assert refused(other).message == 'two columns could be the words: "one" and "two"'


def test_tags_that_are_not_one_per_word(tmp_path):
    file = write(tmp_path / "a.jsonl", {"tokens": WORDS, "tags": [["O", "B"]] * N})
    error = refused(file, kind="tags")
    assert error.message == 'no column has one tag per word of "tokens"'
    plain = write(tmp_path / "b.csv", {"text": TEXTS, "label": CLASSES})
    assert refused(plain, kind="tags").message == "no column holds lists of words"


def test_tags_of_a_text_that_is_not_split(tmp_path):
    file = write(tmp_path / "a.jsonl", {"text": [" ".join(words) for words in WORDS], "labels": TAGS})
    error = refused(file)
    assert error.message == 'column "labels" has one tag per word, but "text" is not split into words'


def test_a_plain_text_beside_words_and_tags(tmp_path):
    columns = {"text": TEXTS, "tokens": WORDS, "upos": TAGS}
    assert find_layout(write(tmp_path / "a.jsonl", columns)) == Layout("tags", "tokens", None, "upos")
    both = write(tmp_path / "b.jsonl", {"text": TEXTS, "intent": CLASSES, "tokens": WORDS, "slot tags": TAGS})
    error = refused(both)
    assert error.message == 'a row has one label ("intent") and one tag per word ("slot tags")'
    assert error.hint == "give --kind class or --kind tags"
    assert find_layout(both, kind="class") == Layout("class", "text", None, "intent")
    assert find_layout(both, kind="tags") == Layout("tags", "tokens", None, "slot tags")
    assert find_layout(both, label="intent") == Layout("class", "text", None, "intent")
    assert find_layout(both, label="slot tags") == Layout("tags", "tokens", None, "slot tags")


# Files that go with a labelled one


LIKE = Layout("class", "review", None, "stars")
LIKE_PAIR = Layout("class", "question", "sentence", "label")


def find_text(source: str, like: Layout):
    return find_text_column(source, None, like=like, field="--unlabelled")


def test_the_same_names_as_in_the_labelled_file(tmp_path):
    file = write(tmp_path / "a.csv", {"title": MORE, "review": TEXTS, "question": MORE, "sentence": TEXTS})
    assert find_text(file, LIKE) == ("review", None)
    assert find_text(file, LIKE_PAIR) == ("question", "sentence")


def test_other_names_than_in_the_labelled_file(tmp_path):
    assert find_text(write(tmp_path / "a.csv", {"id": STARS, "comment": TEXTS, "stars": STARS}), LIKE)[0] == "comment"
    assert find_text(write(tmp_path / "b.csv", {"anything": TEXTS}), LIKE) == ("anything", None)
    pairs = write(tmp_path / "c.csv", {"premise": TEXTS, "hypothesis": MORE})
    assert find_text(pairs, LIKE_PAIR) == ("premise", "hypothesis")
    with pytest.raises(UserError, match="has two texts, and a row of the labelled data has one") as error:
        find_text(pairs, LIKE)
    assert error.value.field == "--unlabelled"
    with pytest.raises(UserError, match="has one text, and a row of the labelled data has two") as error:
        find_text(write(tmp_path / "d.csv", {"id": STARS, "comment": TEXTS}), LIKE_PAIR)
    assert error.value.hint == 'call the columns "question" and "sentence", as in the labelled data'


def test_text_columns_that_are_not_certain(tmp_path):
    with pytest.raises(UserError, match="two columns could be the text") as error:
        find_text(write(tmp_path / "a.csv", {"title": MORE, "body": TEXTS}), LIKE)
    assert error.value.hint == 'call the column "review", as in the labelled data'
    headless = write(tmp_path / "b.csv", {"the very first text of this file": TEXTS, "good": CLASSES})
    with pytest.raises(UserError, match="looks as if it had no header"):
        find_text(headless, LIKE)


def test_lines_of_text_have_no_columns(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("one text of five words\nanother\n")
    assert find_text(str(file), LIKE) == ("review", None)
    assert find_text(str(file), LIKE_PAIR) == ("question", None)
    with pytest.raises(UserError, match="does not exist"):
        find_text(str(tmp_path / "none.txt"), LIKE)


def test_words_of_other_tagging_files(tmp_path):
    tags = Layout("tags", "form", None, "upos")
    assert find_text(write(tmp_path / "a.jsonl", {"tokens": WORDS, "tags": TAGS}), tags) == ("tokens", None)
    assert find_text(write_conll(tmp_path / "a.conll", "EU NNP\nrejects VBZ"), tags) == (1, None)
    assert find_text(write(tmp_path / "b.csv", {"text": TEXTS, "id": STARS}), tags) == ("text", None)
