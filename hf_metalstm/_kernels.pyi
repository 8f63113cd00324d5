"""The compiled module; its C++ sources are in csrc/."""

LSTM_FORWARD: int
LSTM_BACKWARD: int
META_LSTM_FORWARD: int
META_LSTM_BACKWARD: int
GRU_FORWARD: int
GRU_BACKWARD: int
HYPER_LSTM_FORWARD: int
HYPER_LSTM_BACKWARD: int

def instruction_sets() -> tuple[str, ...]: ...
def packed_bytes(instruction_set: str, op: int, is_double: bool, sizes: tuple[int, ...], /) -> int: ...
def pack(
    instruction_set: str,
    op: int,
    is_double: bool,
    sizes: tuple[int, ...],
    weight_addresses: tuple[int, ...],
    target_address: int,
    /,
) -> None: ...
def digest(addresses: tuple[int, ...], sizes_in_bytes: tuple[int, ...], /) -> int: ...
def run(
    instruction_set: str,
    op: int,
    is_double: bool,
    threads: int,
    least_work_of_a_thread: int,
    rows: int,
    steps: int,
    lengths_address: int,
    reverse: bool,
    sizes: tuple[int, ...],
    data_addresses: tuple[int, ...],
    packed_address: int,
    /,
) -> None: ...
