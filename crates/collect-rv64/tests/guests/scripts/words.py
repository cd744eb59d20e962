# What a Python program does: texts, threads, children, numbers, errors.
# SPDX-License-Identifier: MIT OR Apache-2.0
import os, sys, json, re, threading, collections, itertools, math, struct, zlib
words = collections.Counter(re.findall(r"[a-z]+", open(sys.argv[1]).read().lower()))
print(json.dumps(sorted(words.items(), key=lambda w: (-w[1], w[0]))[:5]))
total = []
def work(n):
    total.append(sum(i * i for i in range(n)))
threads = [threading.Thread(target=work, args=(200 * k,)) for k in range(5)]
for t in threads: t.start()
for t in threads: t.join()
print(sorted(total), zlib.crc32(b"ichnos"), struct.pack("<d", math.sqrt(2)).hex())
r, w = os.pipe()
pid = os.fork()
if pid == 0:
    os.write(w, b"child"); os._exit(3)
os.close(w)
print(os.read(r, 100), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
class Shape:
    def __init__(self, n): self.n = n
    def __repr__(self): return f"<{self.n:>4}>"
print([Shape(p) for p in itertools.islice((n for n in range(2, 50) if all(n % d for d in range(2, n))), 8)])
try:
    {}["x"]
except KeyError as e:
    print("missing", e)
sys.exit(5)
