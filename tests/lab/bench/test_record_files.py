"""What `drafter bench` measured is read as it was written, and a bad line is named."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.bench.errors import BadRecords
from lab.bench.record_files import RECORDS, RecordsWriter, encode_record, parse_records, read_results, write_run
from lab.bench.records import MeasuredRequest, RequestFailure, Speculation
from tests.lab.bench.runs import a_case, a_request, a_run, a_side

SECONDS = st.floats(0, 1e6, allow_nan=False)
REQUESTS = st.builds(
    MeasuredRequest,
    scheduled=SECONDS,
    started=SECONDS,
    ended=SECONDS,
    chunks=st.lists(SECONDS, max_size=5).map(tuple),
    tokens_out=...,
    text=...,
    speculation=st.none() | st.builds(Speculation, rounds=...),
    failure=st.none() | st.builds(RequestFailure, status=...),
)


@given(st.lists(REQUESTS, max_size=4))
def test_records_are_read_as_they_were_written(records: list[MeasuredRequest]) -> None:
    data = b"".join(map(encode_record, records))
    assert parse_records(data, "x") == (records, len(data))


@given(st.lists(REQUESTS, min_size=1, max_size=3), st.integers(1, 40))
def test_a_last_line_that_was_cut_off_is_left_out(records: list[MeasuredRequest], cut: int) -> None:
    lines = [*map(encode_record, records)]
    data = b"".join(lines)
    kept, length = parse_records(data[:-cut] if cut < len(lines[-1]) else data[: -len(lines[-1]) + 1], "x")
    assert kept == records[:-1]
    assert length == len(b"".join(lines[:-1]))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", r"r\.jsonl, line 2: this is no record .*: delete the line, and --resume asks again"),
        (b"{}", r"r\.jsonl, line 2: .*side: Field required"),
        (encode_record(a_request()).replace(b'"index":0', b'"index":"x"').strip(), r"line 2: .*index"),
    ],
)
def test_a_bad_line_is_named(line: bytes, message: str) -> None:
    with pytest.raises(BadRecords, match=message):
        parse_records(encode_record(a_request()) + line + b"\n", "r.jsonl")


def test_a_run_goes_on_in_its_folder(tmp_path: Path) -> None:
    write_run(tmp_path, a_run([a_side("target")], [a_case(requests=2)]))
    writer = RecordsWriter(tmp_path)
    writer.add(a_request(repetition=-1))
    writer.add(a_request())
    writer.close()
    with (tmp_path / RECORDS).open("ab") as file:
        file.write(b'{"record":"requ')
    again = RecordsWriter(tmp_path)
    with pytest.raises(BadRecords, match="another run writes to"):
        RecordsWriter(tmp_path)
    again.add(a_request(index=1))
    again.close()
    results = read_results(tmp_path)
    assert [each.index for each in results.requests] == [0, 1]
    assert results.is_complete


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadRecords, match=r"is no folder of 'drafter bench': it has no run\.json"):
        read_results(tmp_path)
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(BadRecords, match=r"is not of the format specpair-bench-2"):
        read_results(tmp_path)
