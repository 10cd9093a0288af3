-- A mail store in a database, loaded as Jetstress loads that of Exchange: 50 mailboxes with one operation a second
-- each; of 100 operations 17 insert a record, 68 replace one, 5 delete one, 10 seek one; 90 of 100 commits are lazy.
-- Its published log (blogs.msdn.microsoft.com/hmlee, July 2005) has this mix and records of 1000 bytes.

require("terminals")

sysbench.cmdline.options = {
   mailboxes = { "Mailboxes of each thread", 5 },
   records = { "Records of each mailbox at the start", 2000 },
   bytes = { "Bytes of a record", 1000 },
   rate = { "Operations of a mailbox each second", 1 },
   lazy = { "Percent of commits that are lazy", 90 },
}

local ROWS_OF_INSERT = 100
local uniform = function(from, to) return sysbench.rand.uniform(from, to) end
local function content() return sysbench.rand.string(string.rep("@", sysbench.opt.bytes)) end

function prepare()
   local connection = sysbench.sql.driver():connect()
   connection:query("CREATE TABLE record (mailbox int, number int, flags int, received datetime, content blob, " ..
      "primary key (mailbox, number), key (mailbox, received)) ENGINE=InnoDB")
   for mailbox = 0, sysbench.opt.threads * sysbench.opt.mailboxes - 1 do
      for first = 1, sysbench.opt.records, ROWS_OF_INSERT do
         local rows = {}
         for number = first, math.min(first + ROWS_OF_INSERT - 1, sysbench.opt.records) do
            rows[#rows + 1] = string.format("(%d,%d,0,NOW(),'%s')", mailbox, number, content())
         end
         connection:query("INSERT INTO record VALUES " .. table.concat(rows, ","))
      end
   end
end

local connection
-- The numbers of a mailbox's records are 1 to this; deleted ones leave gaps.
local newest = {}

function thread_init()
   connection = sysbench.sql.driver():connect()
   seat_terminals(sysbench.opt.mailboxes, 1 / sysbench.opt.rate)
   connection:query("BEGIN")
end

local function operate(mailbox)
   local last = newest[mailbox] or sysbench.opt.records
   local key = string.format("mailbox=%d AND number=%d", mailbox, uniform(1, last))
   local draw = uniform(1, 100)
   if draw <= 17 then
      newest[mailbox] = last + 1
      connection:query(string.format("INSERT INTO record VALUES (%d,%d,0,NOW(),'%s')", mailbox, last + 1, content()))
   elseif draw <= 85 then
      connection:query(string.format("UPDATE record SET flags=flags+1, content='%s' WHERE %s", content(), key))
   elseif draw <= 90 then
      connection:query("DELETE FROM record WHERE " .. key)
   else
      connection:query("SELECT flags, content FROM record WHERE " .. key)
   end
end

-- InnoDB has no lazy commit of one session: what would be lazy stays in the open transaction, which the next commit
-- that is not lazy makes durable. Its log records are in the log buffer until then, as those of lazy commits are.
function event()
   local turn = next_terminal()
   operate(sysbench.tid * sysbench.opt.mailboxes + turn - 1)
   if uniform(1, 100) > sysbench.opt.lazy then
      connection:query("COMMIT")
      connection:query("BEGIN")
   end
   terminal_rests(turn, exponential(1 / sysbench.opt.rate))
end

function thread_done()
   connection:query("COMMIT")
   connection:disconnect()
end
