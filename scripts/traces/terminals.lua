-- Terminals that think: each sysbench thread is one connection and serves several of them in turn.

local ffi = require("ffi")
ffi.cdef [[
int usleep(unsigned int microseconds);
typedef struct { long seconds; long nanoseconds; } okeanos_timespec;
int clock_gettime(int clock, okeanos_timespec *time);
]]

local MONOTONIC = 1
local reading = ffi.new("okeanos_timespec")
local function now()
   ffi.C.clock_gettime(MONOTONIC, reading)
   return tonumber(reading.seconds) + tonumber(reading.nanoseconds) * 1e-9
end

-- Exponential, cut at ten times its mean (TPC-C 5.2.5.4).
function exponential(mean)
   local uniform = sysbench.rand.uniform(1, 1000000) / 1000000
   return math.min(-math.log(uniform) * mean, 10 * mean)
end

local due = {}

-- The first time of each terminal is spread over `seconds`.
function seat_terminals(count, seconds)
   local start = now()
   for terminal = 1, count do
      due[terminal] = start + sysbench.rand.uniform(0, 1000000) / 1000000 * seconds
   end
end

-- Sleeps until the next terminal is due; its number.
function next_terminal()
   local first = 1
   for terminal = 2, #due do
      if due[terminal] < due[first] then first = terminal end
   end
   -- In short naps: usleep may refuse more than a second.
   while true do
      local rest = due[first] - now()
      if rest <= 0 then return first end
      ffi.C.usleep(math.min(rest, 0.5) * 1000000)
   end
end

function terminal_rests(terminal, seconds)
   due[terminal] = now() + seconds
end
