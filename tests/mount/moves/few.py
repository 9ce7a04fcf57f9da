# Stores into 40 pages of the file again and again, and writes each store to descriptor 3.
import mmap, os, sys, time
f = open(sys.argv[1], "r+b")
m = mmap.mmap(f.fileno(), 0)
n = 0
while True:  # SIGBUS ends it; before that it prints each store
    n += 1
    for page in range(0, 40):
        m[page * 400 * 4096:page * 400 * 4096 + 8] = n.to_bytes(8, "little")
        os.pwrite(3, b"%20d %20d" % (n, page), 0)
    time.sleep(0.02)
