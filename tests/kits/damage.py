"""Damage to a file."""


def flip_bit(path, index: int = -1, bit: int = 0) -> None:
    """Flips a bit of a file in place, like a faulty disk."""
    with open(path, "r+b") as file:
        content = bytearray(file.read())
        content[index] ^= 1 << bit
        file.seek(0)
        file.write(content)
