"""Properties without labels, CoNLL-U, and targets that are not one class."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise

import pytest

from helpers.real import real_data
from probescale.config import DataConfig
from probescale.errors import UserError
from probescale.tasks.labelled import load_examples, load_tagged
from probescale.tasks.readers import read_conllu
from probescale.tasks.structural import PROPERTIES, bigram_shift, load_property, sentence_length, word_content

CONLLU = """# sent_id = 1
# text = Dogs don't bark.
1\tDogs\tdog\tNOUN\tNNS\tNumber=Plur\t4\tnsubj\t_\t_
2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
2\tdo\tdo\tAUX\tVBP\tTense=Pres|VerbForm=Fin\t4\taux\t_\t_
3\tn't\tnot\tPART\t_\t_\t4\tadvmod\t_\t_
4\tbark\tbark\tVERB\tVB\tTense=Pres\t0\troot\t_\t_
4.1\tbark\tbark\tVERB\tVB\t_\t_\t_\t_\t_
5\t.\t.\tPUNCT\t.\t_\t4\tpunct\t_\t_

1\tIt\tit\tPRON\tPRP\tNumber=Sing\t2\tnsubj\t_\t_
2\trained\train\tVERB\tVBD\tTense=Past\t0\troot\t_\t_

1\tRain\train\tNOUN\tNN\tNumber=Sing\t0\troot\t_\t_

"""


@pytest.fixture(params=["plain", "gz"])
def conllu_file(request, tmp_path):
    if request.param == "plain":
        path = tmp_path / "a.conllu"
        path.write_text(CONLLU)
        return path
    path = tmp_path / "a.conllu.gz"
    path.write_bytes(gzip.compress(CONLLU.encode()))
    return path


def test_conllu_has_words_only_and_a_column_a_feature(conllu_file):
    columns = read_conllu(conllu_file)
    assert columns["form"] == [["Dogs", "do", "n't", "bark", "."], ["It", "rained"], ["Rain"]]
    assert columns["xpos"][0] == ["NNS", "VBP", None, "VB", "."]
    assert columns["Tense"] == [[None, "Pres", None, "Pres", None], [None, "Past"], [None]]
    assert columns["head"][0] == ["4", "4", "4", "0", "4"]


def test_words_without_a_value_have_no_tag(conllu_file):
    found = load_tagged(DataConfig(source=str(conllu_file), text="form", label="Tense"), field="x")
    assert found.words == (("Dogs", "do", "n't", "bark", "."), ("It", "rained"))
    assert found.names == ("Past", "Pres")
    assert found.tags == ((-1, 1, -1, 1, -1), (-1, 0))
    with pytest.raises(UserError, match=r"use one of: .*Tense"):
        load_tagged(DataConfig(source=str(conllu_file), text="form", label="Tens"), field="x")


def test_tense_and_number_of_the_sentence(conllu_file):
    data = DataConfig(source=str(conllu_file))
    tense = load_property("tense", data, (), 0, field="p")
    assert dict(zip(tense.texts, (tense.names[k] for k in tense.labels), strict=True)) == {
        "Dogs do n't bark .": "Pres",
        "It rained": "Past",
    }
    number = load_property("subject_number", data, (), 0, field="p")
    assert [number.names[k] for k in number.labels] == ["Plur", "Sing"], "the sentence without a subject is left out"


def test_broken_conllu_is_one_message(tmp_path):
    (tmp_path / "b.conllu").write_text("1\tDogs\tdog\n")
    with pytest.raises(UserError, match="cannot be read"):
        load_tagged(DataConfig(source=str(tmp_path / "b.conllu"), text="form", label="upos"), field="x")


TEXTS = [" ".join(f"w{(i * j) % 7}" for j in range(1, 3 + i % 12)) + f" end{i}" for i in range(240)]


def test_sentence_length_has_classes_of_like_size_in_order():
    rows = sentence_length({"text": TEXTS}, 0)
    sizes = {label: [len(t.split()) for t, one in rows if one == label] for label in sorted({r for _, r in rows})}
    assert len(sizes) == 6
    assert max(map(len, sizes.values())) <= 2 * min(map(len, sizes.values()))
    ranges = [(min(s), max(s)) for s in sizes.values()]
    assert all(a[1] < b[0] for a, b in pairwise(ranges))


def test_bigram_shift_swaps_two_neighbours_in_half_of_the_sentences():
    texts = [f"one two three four five six{i}" for i in range(300)]
    rows = bigram_shift({"text": texts}, 0)
    assert len(rows) == 300
    assert 110 < sum(label == "swapped" for _, label in rows) < 190
    for before, (after, label) in zip(texts, rows, strict=True):
        differ = [i for i, (a, b) in enumerate(zip(before.split(), after.split(), strict=True)) if a != b]
        assert sorted(before.split()) == sorted(after.split())
        assert (len(differ) == 2 and differ[1] == differ[0] + 1) if label == "swapped" else not differ
    assert bigram_shift({"text": texts}, 0) == rows
    assert bigram_shift({"text": texts}, 1) != rows
    assert bigram_shift({"text": ["a b c", "same same same same same"]}, 0) == []


def test_word_content_asks_which_word_is_there():
    texts = [f"word{chr(97 + i % 5) * 2} filler{'abc'[i % 3]} x{i}" for i in range(300)]
    rows = word_content({"text": texts}, 0)
    assert rows
    for text, label in rows:
        assert label in text.split()


def test_a_property_of_text_that_does_not_show_it():
    with pytest.raises(UserError, match="bigram_shift"):
        load_property("bigram_shift", None, ("too short", "a b"), 0, field="p")
    assert set(PROPERTIES) == {"sentence_length", "bigram_shift", "word_content", "tense", "subject_number"}


def test_several_labels_a_row(tmp_path):
    path = tmp_path / "m.csv"
    path.write_text("text,label\none,joy| anger\ntwo,joy|fear\nthree,\nfour,joy|joy\nfive,fear\nsix,anger\n")
    found = load_examples(DataConfig(source=str(path)), field="x", target="multi")
    assert found.names == ("anger", "fear", "joy")
    assert found.labels == ((0, 2), (1, 2), (), (2,), (1,), (0,))
    lists = tmp_path / "m.jsonl"
    rows = [{"text": "a", "label": ["x", "y"]}, {"text": "b", "label": []}, {"text": "c", "label": ["x"]}] * 2
    lists.write_text("\n".join(map(json.dumps, rows)))
    assert load_examples(DataConfig(source=str(lists)), field="x", target="multi").labels[:3] == ((0, 1), (), (0,))


@pytest.mark.parametrize(
    ("cells", "says"), [(["1.5", "x", "2"], "row 2: 'x'"), (["1", "nan"], "row 2"), (["3", "3"], "same")]
)
def test_numbers_that_are_none(tmp_path, cells, says):
    path = tmp_path / "n.csv"
    path.write_text("text,label\n" + "\n".join(f"t{i},{cell}" for i, cell in enumerate(cells)) + "\n")
    with pytest.raises(UserError, match=says):
        load_examples(DataConfig(source=str(path)), field="x", target="number")


def test_numbers(tmp_path):
    path = tmp_path / "n.csv"
    path.write_text("text,label\na,1.5\nb,-2\nc,1e3\n")
    assert load_examples(DataConfig(source=str(path)), field="x", target="number").labels == (1.5, -2.0, 1000.0)


@pytest.mark.real
def test_real_conllu():
    path = real_data("ud_english_ewt/en_ewt-ud-dev.conllu.gz")
    found = load_tagged(DataConfig(source=str(path), text="form", label="upos"), field="x")
    assert len(found.names) == 17
    tense = load_property("tense", DataConfig(source=str(path)), (), 0, field="p")
    assert tense.names == ("Past", "Pres")
    assert len(tense) > 500
