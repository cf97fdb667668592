"""The half of the Redis store that runs inside Redis: each script is one step that nothing can interrupt.

All keys begin with KEYS[1], a hash tag, so that a cluster keeps them on one node:

    <tag>:version               how many migrations the data has seen
    <tag>:documents:<kind>      hash, key → "<revision> <value as JSON>"
    <tag>:marks:<kind>          hash, key → [terms, counts] as JSON; absent when there are none
    <tag>:list:<kind>\\0<term>   sorted set of "<place>\\0<key>", all with score 0
    <tag>:totals                hash, name → sum of the counts
    <tag>:lease:<name>          the holder, until it expires
    <tag>:bucket:<name>         "<permits> <time>", until it is full again
"""

# Values pass through as text: cjson would turn an empty list into an empty object. Amounts are texts, too, since
# Lua writes large numbers as 1e+15. What can be refused is refused before the first change: Redis undoes nothing.
WRITE = r"""
local tag, version, changes = KEYS[1], ARGV[1], cjson.decode(ARGV[2])
local found = redis.call('GET', tag .. ':version')
if found and found ~= version then return {'version', found} end

local added = {}
local function add(counts, sign)
    for name, amount in pairs(counts) do added[name] = (added[name] or 0) + sign * tonumber(amount) end
end
for number, change in ipairs(changes.documents) do
    local document = redis.call('HGET', tag .. ':documents:' .. change.kind, change.key)
    change.found = document and tonumber(string.match(document, '^%d+')) or 0
    if change.revision and change.revision ~= change.found then return {'stale', number} end
    local marks = redis.call('HGET', tag .. ':marks:' .. change.kind, change.key)
    change.old = marks and cjson.decode(marks) or {{}, {}}
    add(change.old[2], -1)
    add(change.counts, 1)
end
for number, limit in ipairs(changes.limits) do
    local total = redis.call('HGET', tag .. ':totals', limit[1]) or '0'
    if tonumber(total) + (added[limit[1]] or 0) > tonumber(limit[2]) then return {'limit', number, total} end
end

if not found then redis.call('SET', tag .. ':version', version) end
for number, change in ipairs(changes.documents) do
    local function list(term) return tag .. ':list:' .. change.kind .. '\0' .. term end
    for term, place in pairs(change.old[1]) do
        if change.terms[term] ~= place then redis.call('ZREM', list(term), place .. '\0' .. change.key) end
    end
    for term, place in pairs(change.terms) do
        if change.old[1][term] ~= place then redis.call('ZADD', list(term), 0, place .. '\0' .. change.key) end
    end
    if change.delete then
        redis.call('HDEL', tag .. ':documents:' .. change.kind, change.key)
    else
        local document = string.format('%.0f ', change.found + 1) .. ARGV[2 + number]
        redis.call('HSET', tag .. ':documents:' .. change.kind, change.key, document)
    end
    if next(change.terms) or next(change.counts) then
        local marks = cjson.encode({change.terms, change.counts})
        redis.call('HSET', tag .. ':marks:' .. change.kind, change.key, marks)
    else
        redis.call('HDEL', tag .. ':marks:' .. change.kind, change.key)
    end
end
for name, amount in pairs(added) do
    if amount ~= 0 and redis.call('HINCRBY', tag .. ':totals', name, string.format('%.0f', amount)) == 0 then
        redis.call('HDEL', tag .. ':totals', name)
    end
end
return {'ok'}
"""

# ARGV: kind, 1 for reverse, the member after which to begin or '', offset, count, terms. Answers the total, the
# members of the page with the one behind it, as JSON, and the page's documents as they are: joining them takes
# Redis three times as long as finding them. Lists are merged as far as the page reaches; only to count what
# several have together, the entries of all but the longest are looked at.
PAGE = r"""
local tag, kind, after, terms = KEYS[1], ARGV[1], ARGV[3], {unpack(ARGV, 6)}
local reverse, offset, count = ARGV[2] == '1', tonumber(ARGV[4]), tonumber(ARGV[5])
local range, start, stop = 'ZRANGEBYLEX', '-', '+'
if reverse then range, start, stop = 'ZREVRANGEBYLEX', '+', '-' end

local function list(term) return tag .. ':list:' .. kind .. '\0' .. term end
local function size(term) return redis.call('ZCARD', list(term)) end
local function key_of(member) return string.sub(member, string.find(member, '\0', 1, true) + 1) end
local function in_one_of(terms, number, key)
    if number == 0 then return false end
    local marks = redis.call('HGET', tag .. ':marks:' .. kind, key)
    if not marks then return false end  -- a server that evicts has lost them
    local places = cjson.decode(marks)[1]
    for earlier = 1, number do
        if places[terms[earlier]] then return true end
    end
    return false
end
-- The entries of one of the lists that are in none of those before it.
local function members(terms, number, from)
    local chunk, at = {}, 0
    return function()
        while true do
            at = at + 1
            if at > #chunk then
                chunk, at = redis.call(range, list(terms[number]), from, stop, 'LIMIT', 0, 200), 1
                if #chunk == 0 then return nil end
                from = '(' .. chunk[#chunk]
            end
            if not in_one_of(terms, number - 1, key_of(chunk[at])) then return chunk[at] end
        end
    end
end
local function precedes(one, other)  -- by bytes: Lua's own < obeys the server's locale
    for i = 1, math.min(#one, #other) do
        local a, b = string.byte(one, i), string.byte(other, i)
        if a ~= b then return (a < b) ~= reverse end
    end
    return (#one < #other) ~= reverse
end
local function merged(from)
    local heads, walks, found = {}, {}, {}
    for number = 1, #terms do
        walks[number] = members(terms, number, from)
        heads[number] = walks[number]()
    end
    for position = 1, offset + count do
        local first
        for number = 1, #terms do
            local closer = heads[number] and (not first or precedes(heads[number], heads[first]))
            if closer then first = number end
        end
        if not first then break end
        if position > offset then found[#found + 1] = heads[first] end
        heads[first] = walks[first]()
    end
    return found
end

local from = after == '' and start or '(' .. after
local found
if #terms == 1 then
    found = redis.call(range, list(terms[1]), from, stop, 'LIMIT', ARGV[4], ARGV[5])
else
    found = merged(from)
    table.sort(terms, function(one, other) return size(one) > size(other) end)
end
local total = size(terms[1])
for number = 2, #terms do
    for _ in members(terms, number, start) do total = total + 1 end
end
local documents = {}
for i = 1, math.min(#found, count - 1) do
    documents[i] = redis.call('HGET', tag .. ':documents:' .. kind, key_of(found[i]))
end
return {total, cjson.encode(found), documents}
"""

# ARGV: name, holder, milliseconds.
LEASE = r"""
local key, holder = KEYS[1] .. ':lease:' .. ARGV[1], ARGV[2]
local found = redis.call('GET', key)
if found and found ~= holder then return 0 end
if ARGV[3] == '0' then redis.call('DEL', key) else redis.call('SET', key, holder, 'PX', ARGV[3]) end
return 1
"""

# ARGV: bucket, rate, burst. Answers how many permits there were before one was taken, if there was one.
SPEND = r"""
local key, rate, burst = KEYS[1] .. ':bucket:' .. ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local clock = redis.call('TIME')
local now, tokens = clock[1] + clock[2] / 1000000, burst
local found = redis.call('GET', key)
if found then
    local left, since = string.match(found, '(%S+) (%S+)')
    tokens = math.min(burst, tonumber(left) + math.max(0, now - tonumber(since)) * rate)
end
if tokens >= 1 then
    local full = math.min(math.ceil((burst - tokens + 1) / rate * 1000), 365 * 86400000)
    local state = string.format('%.17g %.17g', tokens - 1, now)
    redis.call('SET', key, state, 'PX', string.format('%.0f', math.max(1, full)))
end
return string.format('%.17g', tokens)
"""

# ARGV: the version that the step `%s` begins with. Answers the version that the data has now.
MIGRATE = r"""
local version = tonumber(redis.call('GET', KEYS[1] .. ':version') or '0')
if version == tonumber(ARGV[1]) then
    (function() %s end)()
    version = version + 1
    redis.call('SET', KEYS[1] .. ':version', version)
end
return version
"""
