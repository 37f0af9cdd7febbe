"""Heads of GGUF files: what the format's own package writes is read, of a file here and of one on the hub."""

import random
import struct
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader, GGUFValueType, GGUFWriter
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models import DEFAULT_DRAFT, DEFAULT_TARGET
from models.errors import BadHead
from models.hub.gguf_head import FIRST, STEP, GgufHead, fetch_head, read_head
from models.hub.repository import Hub
from tests.stand_ins.hub import serving

TOKENS = 150_000


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with as many tokens and merges as a Qwen has."""
    path = tmp_path_factory.mktemp("heads") / "Toy-F32.gguf"
    writer, draw = GGUFWriter(path, "llama"), random.Random(1)
    tokens = [f"Ġ{draw.getrandbits(draw.randrange(8, 48)):x}" for _ in range(TOKENS)]
    writer.add_token_list(tokens)
    writer.add_token_types([1] * TOKENS)
    writer.add_token_merges([f"{token} {token[::-1]}" for token in tokens])
    writer.add_chat_template("{{ messages }}")
    writer.add_block_count(2)
    writer.add_tensor("token_embd.weight", np.zeros((4, 32), np.float32))
    writer.add_tensor("output.weight", np.zeros(1_000_000, np.float32))
    _write(writer)
    return path


def _write(writer: GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("path", [DEFAULT_TARGET, DEFAULT_DRAFT], ids=lambda path: path.stem)
def test_the_head_says_what_the_formats_own_reader_says(path: Path) -> None:
    head, reader = read_head(path), GGUFReader(path)
    own = {name: field for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    assert {name: entry.value for name, entry in head.entries.items()} == {
        name: field.contents() for name, field in own.items()
    }
    assert [(each.name, each.shape, each.kind, each.offset) for each in head.tensors] == [
        (each.name, tuple(each.shape.tolist()), each.tensor_type, each.data_offset) for each in reader.tensors
    ]
    assert head.size == reader.data_offset and head.stated("block_count") == head.get("llama.block_count")
    assert head.get("nothing") is None


def test_every_type_of_entry_is_read(tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "a.gguf", "llama")
    entries = {
        GGUFValueType.UINT8: 250,
        GGUFValueType.INT8: -3,
        GGUFValueType.UINT16: 60_000,
        GGUFValueType.INT16: -30_000,
        GGUFValueType.UINT32: 2**32 - 1,
        GGUFValueType.INT32: -(2**31),
        GGUFValueType.FLOAT32: 0.5,
        GGUFValueType.BOOL: True,
        GGUFValueType.STRING: "Grüße",
        GGUFValueType.UINT64: 2**64 - 1,
        GGUFValueType.INT64: -(2**63),
        GGUFValueType.FLOAT64: 1e300,
    }
    for kind, value in entries.items():
        writer.add_key_value(f"one.{kind.name}", value, kind)
        writer.add_key_value(f"many.{kind.name}", [value, value], GGUFValueType.ARRAY, kind)
    writer.add_custom_alignment(64)
    writer.add_tensor("t", np.zeros((2, 3), np.float16))
    _write(writer)
    head = read_head(tmp_path / "a.gguf")
    for kind, value in entries.items():
        assert head.get(f"one.{kind.name}") == value and head.get(f"many.{kind.name}") == [value, value]
        assert head.entries[f"many.{kind.name}"].item == kind
    [tensor] = head.tensors
    assert (tensor.shape, tensor.offset, head.size % 64) == ((3, 2), head.size, 0)


def test_of_a_file_on_the_hub_little_more_than_its_head_is_fetched(large: Path, tmp_path: Path) -> None:
    with serving({"u/toy": {"Toy-F32.gguf": large.read_bytes()}}) as stand_in:
        hub = Hub(stand_in.address, tmp_path, False)
        listing = hub.listing("u/toy")
        head = fetch_head(hub, listing, listing.files[0])
        assert head == read_head(large)
        assert FIRST < head.size < stand_in.sent["Toy-F32.gguf"] < head.size + STEP + 4096
        assert stand_in.counted("/large/") < 15


def _head_of(tmp_path: Path, content: bytes) -> GgufHead:
    path = tmp_path / "spoiled.gguf"
    path.write_bytes(content)
    return read_head(path)


def _small() -> bytes:
    key = b"general.architecture"
    entry = struct.pack("<Q", len(key)) + key + struct.pack("<IQ", 8, 5) + b"llama"
    strings = struct.pack("<Q", 1) + b"s" + struct.pack("<IIQ", 9, 8, 2) + 2 * (struct.pack("<Q", 3) + b"abc")
    tensor = struct.pack("<Q", 1) + b"t" + struct.pack("<IQQIQ", 2, 4, 2, 0, 0)
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 2) + entry + strings + tensor
    return head + bytes(-len(head) % 32 + 32)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.integers(0, len(_small()) - 1))
def test_a_head_that_is_cut_short_is_told(tmp_path: Path, length: int) -> None:
    with pytest.raises(BadHead, match=r"spoiled\.gguf"):
        _head_of(tmp_path, _small()[:length])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(_small()) - 1), st.integers(0, 255)), max_size=4))
def test_a_damaged_head_is_read_or_told(tmp_path: Path, changes: list[tuple[int, int]]) -> None:
    content = bytearray(_small())
    for at, byte in changes:
        content[at] = byte
    with suppress(BadHead):  # and nothing else
        _head_of(tmp_path, bytes(content))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "damaged or incomplete: fetch it again"),
        (b"PK\3\4" + bytes(20), "does not begin with the letters GGUF"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "other byte order"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "its version is 1, not 2 or 3"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**60), "its head needs more"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**64 - 1, 0), "its head needs more"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + 2 * struct.pack("<Q1sIB", 1, b"k", 0, 7) + bytes(9), "'k' twice"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 17) + bytes(13 << 17), "65536 at most are read"),
        (_small()[:-32] + bytes(1), "incomplete: fetch it again"),
    ],
)
def test_what_is_no_head_is_told(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(BadHead, match=message):
        _head_of(tmp_path, content)
