-- What a Lua program does: texts, tables, closures, coroutines, errors.
-- SPDX-License-Identifier: MIT OR Apache-2.0
local count = {}
for line in io.lines(arg[1]) do
  for word in line:lower():gmatch("%a+") do count[word] = (count[word] or 0) + 1 end
end
local words = {}
for word in pairs(count) do words[#words + 1] = word end
table.sort(words, function(a, b) return count[a] > count[b] or count[a] == count[b] and a < b end)
for i = 1, 5 do print(words[i], count[words[i]]) end
local primes = coroutine.wrap(function()
  for n = 2, math.huge do
    local prime = true
    for d = 2, math.floor(math.sqrt(n)) do if n % d == 0 then prime = false break end end
    if prime then coroutine.yield(n) end
  end
end)
local list = {}
for i = 1, 100 do list[i] = primes() end
print(table.concat(list, " ", 90), string.format("%.10g %a", math.pi, 1 / 3))
print(pcall(error, { code = 7 }), select(2, pcall(function() return nil + 1 end)))
os.exit(4)
