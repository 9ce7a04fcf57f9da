# Checks the bytes of a file that few.py has stored into: its last stores are there, and all else is as in the mirror.
#   few_came.py FILE MIRROR SAID
import sys
got, want = (bytearray(open(p, "rb").read()) for p in sys.argv[1:3])
n, page = map(int, open(sys.argv[3]).read().split())
for p in range(0, 40):
    at = p * 400 * 4096
    it = int.from_bytes(got[at:at + 8], "little")
    assert it == (n if p <= page else n - 1) or (p == page + 1 and it == n) or \
        (page == 39 and p == 0 and it == n + 1), (p, it, n, page)
    got[at:at + 8] = want[at:at + 8]
assert got == want, "other bytes"
