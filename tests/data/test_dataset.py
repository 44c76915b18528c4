"""`Dataset`, and items read from JSON and CSV."""

import subprocess
import sys
from dataclasses import dataclass

import pytest

from burn_torch.config import Config
from burn_torch.core.errors import DataError
from burn_torch.data import Dataset, InMemDataset


class Squares(Dataset[int]):
    def __len__(self):
        return 4

    def get(self, index):
        assert 0 <= index < 4
        return index * index


@dataclass
class House:
    rooms: int
    price: float
    town: str
    sea: bool = False
    beds: float | None = None


class Row(Config):
    text: str
    label: int = 0


def test_a_dataset_is_a_sequence():
    squares = Squares()
    assert list(squares) == list(squares.iter()) == [0, 1, 4, 9]
    assert (squares[-1], squares[0], len(squares), squares.is_empty()) == (9, 0, 4, False)
    assert squares.get_many([3, 1]) == [9, 1]
    assert InMemDataset([]).is_empty()
    assert InMemDataset.from_dataset(squares)[2] == 4
    assert list(InMemDataset.from_dataset([7, 8])) == [7, 8]


@pytest.mark.parametrize("index", [4, -5, 10**9])
def test_an_index_past_the_end_is_an_index_error(index):
    with pytest.raises(
        IndexError, match=rf"no such item\n  given:    index {index}\n  expected: -4 <= index < 4\n  mend:     take"
    ):
        Squares()[index]
    with pytest.raises(IndexError, match="the dataset is empty"):
        InMemDataset([])[0]


def test_an_index_is_a_whole_number():
    with pytest.raises(TypeError, match="float"):
        Squares()[1.0]


def test_a_dataset_that_lacks_its_methods_is_not_built():
    with pytest.raises(TypeError, match="abstract"):
        Dataset()


def test_csv_rows_become_items(tmp_path):
    path = tmp_path / "houses.csv"
    path.write_text('\ufefftown,price,extra,rooms,beds\n"Old, Town",1e3,x,3,\nBay,2,y,4,1.5\n\n', encoding="utf-8")
    expected = [House(3, 1000.0, "Old, Town", beds=None), House(4, 2.0, "Bay", beds=1.5)]
    assert list(InMemDataset.from_csv(path, House)) == expected
    assert InMemDataset.from_csv(path)[1] == {"town": "Bay", "price": "2", "extra": "y", "rooms": "4", "beds": "1.5"}


def test_csv_without_header_takes_the_fields_in_order(tmp_path):
    path = tmp_path / "rows.tsv"
    path.write_text("a\t1\nb\t2\n")
    assert list(InMemDataset.from_csv(path, Row, delimiter="\t", header=False)) == [
        Row("a", label=1),
        Row("b", label=2),
    ]
    with pytest.raises(
        DataError, match=r"no names\n  given:    header=False and no item_type\n  expected: .*\n  mend:     from_csv"
    ):
        InMemDataset.from_csv(path, header=False)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            "town,price,rooms\nBay,x,3\n",
            r"no float\n  given:    line 2.price = 'x'\n  expected: float\n  mend:     write a number",
        ),
        ("town,price,rooms\nBay,nan,3\n", "not a finite number\n  given:    line 2.price = nan"),
        ("town,price,rooms\nBay,,3\n", r"no float\n  given:    line 2.price = ''"),
        ("town,price,rooms\nBay,1,3.5\n", r"no int\n  given:    line 2.rooms = '3.5'"),
        (
            "town,price,rooms\nBay,1\n",
            r"wrong number of cells\n  given:    line 2 has 2\n  expected: 3: town, price, rooms\n  mend:  ",
        ),
        (
            "town,price\nBay,1\n",
            r"column missing\n  given:    line 1 has the columns town, price\n  expected: one column rooms\n  m",
        ),
        ("town,price,room\nBay,1,2\n", r"mend:     did you mean 'room'\?"),
        ("town,price,rooms,rooms\n", "column given twice"),
        ("", "3 faults"),
        (
            'town,price,rooms\n"Bay,1,2\n',
            r"no CSV\n  given:    line 2 unexpected end of data\n  expected: rows of cells",
        ),
        ("town,price,rooms,sea\nBay,1,2,yes\n", r"no bool\n  given:    line 2.sea = 'yes'"),
    ],
)
def test_faults_of_a_csv_file_are_reported_with_their_lines(tmp_path, text, complaint):
    path = tmp_path / "rows.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=rf"rows.csv: (.|\n)*{complaint}"):
        InMemDataset.from_csv(path, House)


def test_reading_stops_after_some_faults_and_says_so(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("text,label\n" + "a,x\n" * 1000)
    with pytest.raises(DataError, match="reading stopped there: 8 faults"):
        InMemDataset.from_csv(path, Row)


def test_json_rows_become_items(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"rooms": 3, "price": 1, "town": "Bay"}\n\n{"rooms": 4, "price": 2.5, "town": "ä", "sea": true}\n')
    assert list(InMemDataset.from_json_rows(path, House)) == [House(3, 1.0, "Bay"), House(4, 2.5, "ä", sea=True)]
    assert InMemDataset.from_json_rows(path)[0] == {"rooms": 3, "price": 1, "town": "Bay"}


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (
            '{"text": "a", "label": "1"}',
            r"wrong type\n  given:    line 2.label = '1' \(str\)\n  expected: int\n  mend: ",
        ),
        (
            '{"text": "a", "lable": 1}',
            r"unknown field\n  given:    line 2.lable = 1 \(int\)\n  exp.*\n  mend:     did you mean 'label'",
        ),
        ('{"label": 1}', r"missing field\n  given:    line 2.text is not given\n  expected: str\n  mend:     add it"),
        ('{"text": "a", "text": "b"}', r"duplicate key\n  given:    line 2.text is"),
        ('{"text": "a"', r"no JSON\n  given:    line 2 = .*Expecting"),
        ("[1]", r"wrong type\n  given:    line 2 = \[1\] \(list\)\n  expected: a JSON object"),
    ],
)
def test_faults_of_json_rows_are_reported_with_their_lines(tmp_path, line, complaint):
    path = tmp_path / "rows.jsonl"
    path.write_text(f'{{"text": "fine"}}\n{line}\n')
    with pytest.raises(DataError, match=rf"rows.jsonl: {complaint}"):
        InMemDataset.from_json_rows(path, Row)


def test_what_an_item_class_refuses_is_reported_with_its_line(tmp_path):
    class Positive(Row):
        def __post_init__(self):
            if self.label < 0:
                from burn_torch.core.errors import ConfigError, explain

                raise ConfigError(explain("negative label", given="label", expected=">= 0", mend="fix it"))

    path = tmp_path / "rows.jsonl"
    path.write_text('{"text": "a", "label": -1}\n')
    with pytest.raises(
        DataError, match=r"negative label\n  given:    in line 1: label\n  expected: >= 0\n  mend:     fix it"
    ):
        InMemDataset.from_json_rows(path, Positive)


def test_files_that_cannot_be_read_are_reported(tmp_path):
    with pytest.raises(
        DataError, match=r"cannot be read\n  given:    .*No such file.*\n  expected: a text file.*\n  mend:     check"
    ):
        InMemDataset.from_json_rows(tmp_path / "none.jsonl")
    latin = tmp_path / "latin.csv"
    latin.write_bytes(b"text,label\n\xe4,1\n")
    with pytest.raises(DataError, match=r"cannot be read\n  given:    .*utf-8"):
        InMemDataset.from_csv(latin, Row)


def test_items_are_dataclasses(tmp_path):
    with pytest.raises(
        DataError,
        match=r"items of a file are dataclasses\n  given:    item_type=<class 'int'>\n.*\n  mend:     declare",
    ):
        InMemDataset.from_json_rows(tmp_path / "x", int)


def test_importing_data_needs_no_torch():
    code = "import sys, burn_torch.data; print('torch' in sys.modules)"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "False"


def test_public_names_are_sorted_and_there():
    import burn_torch.data as data

    assert data.__all__ == sorted(data.__all__)
    assert all(getattr(data, name).__doc__ for name in data.__all__)


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_rows_that_take_more_memory_than_they_may_are_refused(tmp_path, ending):
    """Rows of one sign take two hundred times their bytes."""
    path = tmp_path / f"rows.{ending}"
    path.write_text("ab\n" + "0\n" * 2000 if ending == "csv" else '{"a": [[], [], []]}\n' * 2000)
    read = InMemDataset.from_csv if ending == "csv" else InMemDataset.from_json_rows
    match = (
        r"take more memory than they may\n  given:    more than 100,000 bytes for the first .* rows\n"
        r"  expected: 100,000 bytes at most.*\n  mend: "
    )
    with pytest.raises(DataError, match=match):
        read(path, limit_bytes=100_000)
    assert len(read(path)) == len(read(path, limit_bytes=2_000_000)) == 2000


@pytest.mark.slow
def test_a_file_of_short_rows_stays_below_its_bound(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes(b"ab\n" + b"0\n" * 6_000_000)

    program = (
        "import resource; from burn_torch import DataError; from burn_torch.data import InMemDataset\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10\n"
        "before = peak()\n"
        f"try: InMemDataset.from_csv({str(path)!r})\n"
        "except DataError: print(peak() - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 512 + 12
