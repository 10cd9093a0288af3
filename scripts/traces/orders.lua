-- An order-entry load after TPC-C (revision 5.11) for sysbench: its nine tables, five transactions, mix, keying and
-- think times. Not TPC-C: a tenth of its rows (--portion), no measurement rules, no screens.

require("terminals")

sysbench.cmdline.options = {
   warehouses = { "Warehouses", 20 },
   terminals = { "Terminals of each thread; thread N serves warehouse N", 10 },
   portion = { "Rows are those of TPC-C divided by this", 10 },
}

local DISTRICTS = 10
local ROWS_OF_INSERT = 200
local uniform = function(from, to) return sysbench.rand.uniform(from, to) end
local function items() return math.floor(100000 / sysbench.opt.portion) end
local function customers() return math.floor(3000 / sysbench.opt.portion) end

local function letters(from, to)
   return sysbench.rand.string(string.rep("@", uniform(from, to)))
end
local function digits(count) return sysbench.rand.string(string.rep("#", count)) end
-- TPC-C 2.1.6; the constant C is 0.
local function uneven(a, from, to)
   return bit.bor(uniform(0, a), uniform(from, to)) % (to - from + 1) + from
end
local SYLLABLES = { "BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING" }
local NAMES = 100
local function last_name(number)
   return SYLLABLES[math.floor(number / 100) % 10 + 1] .. SYLLABLES[math.floor(number / 10) % 10 + 1] ..
      SYLLABLES[number % 10 + 1]
end

-- -- -- The tables

local ADDRESS = "street_1 varchar(20), street_2 varchar(20), city varchar(20), state char(2), zip char(9)"
local TABLES = {
   "warehouse (w int primary key, name varchar(10), " .. ADDRESS .. ", tax decimal(4,4), ytd decimal(12,2))",
   "district (w int, d int, name varchar(10), " .. ADDRESS .. ", tax decimal(4,4), ytd decimal(12,2), next_o int, " ..
      "primary key (w, d))",
   "customer (w int, d int, c int, first varchar(16), middle char(2), last varchar(16), " .. ADDRESS .. ", " ..
      "phone char(16), since datetime, credit char(2), credit_lim decimal(12,2), discount decimal(4,4), " ..
      "balance decimal(12,2), ytd_payment decimal(12,2), payment_cnt int, delivery_cnt int, data varchar(500), " ..
      "primary key (w, d, c), key (w, d, last, first))",
   "history (c_w int, c_d int, c int, w int, d int, date datetime, amount decimal(6,2), data varchar(24))",
   "orders (w int, d int, o int, c int, entry datetime, carrier int, ol_cnt int, all_local int, " ..
      "primary key (w, d, o), key (w, d, c, o))",
   "new_order (w int, d int, o int, primary key (w, d, o))",
   "order_line (w int, d int, o int, number int, i int, supply_w int, delivery datetime, quantity int, " ..
      "amount decimal(6,2), dist_info char(24), primary key (w, d, o, number))",
   "item (i int primary key, im int, name varchar(24), price decimal(5,2), data varchar(50))",
   "stock (w int, i int, quantity int, dist_01 char(24), dist_02 char(24), dist_03 char(24), dist_04 char(24), " ..
      "dist_05 char(24), dist_06 char(24), dist_07 char(24), dist_08 char(24), dist_09 char(24), dist_10 char(24), " ..
      "ytd int, order_cnt int, remote_cnt int, data varchar(50), primary key (w, i))",
}

local function quoted(value)
   if value == nil then return "NULL" end
   return type(value) == "string" and "'" .. value .. "'" or tostring(value)
end

local function fill(connection, table_name, count, row_of)
   local rows = {}
   for number = 1, count do
      local fields = row_of(number)
      for at = 1, fields.n do fields[at] = quoted(fields[at]) end
      rows[#rows + 1] = "(" .. table.concat(fields, ",", 1, fields.n) .. ")"
      if #rows == ROWS_OF_INSERT or number == count then
         connection:query("INSERT INTO " .. table_name .. " VALUES " .. table.concat(rows, ","))
         rows = {}
      end
   end
end
local function row(...) return { n = select("#", ...), ... } end
local function address() return letters(10, 20), letters(10, 20), letters(10, 20), letters(2, 2), digits(9) end
local LOADED = "2026-01-01 00:00:00"

local function fill_district(connection, w, d)
   local street_1, street_2, city, state, zip = address()
   connection:query("INSERT INTO district VALUES (" .. table.concat({ w, d, quoted(letters(6, 10)), quoted(street_1),
      quoted(street_2), quoted(city), quoted(state), quoted(zip), uniform(0, 2000) / 10000, 30000,
      customers() + 1 }, ",") .. ")")
   fill(connection, "customer", customers(), function(c)
      return row(w, d, c, letters(8, 16), "OE", last_name((c - 1) % NAMES), letters(10, 20), letters(10, 20),
         letters(10, 20), letters(2, 2), digits(9), digits(16), LOADED, uniform(1, 10) == 1 and "BC" or "GC", 50000,
         uniform(0, 5000) / 10000, -10, 10, 1, 0, letters(300, 500))
   end)
   fill(connection, "history", customers(), function(c) return row(w, d, c, w, d, LOADED, 10, letters(12, 24)) end)
   -- Every customer has one order; the last 30 % are not delivered.
   local delivered = math.floor(customers() * 0.7)
   local lines = {}
   fill(connection, "orders", customers(), function(o)
      lines[o] = uniform(5, 15)
      return row(w, d, o, (o * 7) % customers() + 1, LOADED, o <= delivered and uniform(1, 10) or nil, lines[o], 1)
   end)
   fill(connection, "new_order", customers() - delivered, function(n) return row(w, d, delivered + n) end)
   for o = 1, customers() do
      fill(connection, "order_line", lines[o], function(number)
         return row(w, d, o, number, uniform(1, items()), w, o <= delivered and LOADED or nil, 5,
            o <= delivered and 0 or uniform(1, 999999) / 100, letters(24, 24))
      end)
   end
end

function prepare()
   local connection = sysbench.sql.driver():connect()
   for _, table_text in ipairs(TABLES) do connection:query("CREATE TABLE " .. table_text .. " ENGINE=InnoDB") end
   fill(connection, "item", items(), function(i)
      return row(i, uniform(1, 10000), letters(14, 24), uniform(100, 10000) / 100, letters(26, 50))
   end)
   for w = 1, sysbench.opt.warehouses do
      connection:query("BEGIN")
      fill(connection, "warehouse", 1, function()
         local street_1, street_2, city, state, zip = address()
         return row(w, letters(6, 10), street_1, street_2, city, state, zip, uniform(0, 2000) / 10000, 300000)
      end)
      fill(connection, "stock", items(), function(i)
         local fields = row(w, i, uniform(10, 100))
         for _ = 1, 10 do fields[#fields + 1] = letters(24, 24) end
         for _, value in ipairs({ 0, 0, 0, letters(26, 50) }) do fields[#fields + 1] = value end
         fields.n = #fields
         return fields
      end)
      for d = 1, DISTRICTS do fill_district(connection, w, d) end
      connection:query("COMMIT")
   end
end

-- -- -- The transactions

local connection, home

local function query(text, ...) return connection:query(string.format(text, ...)) end
local function value(text, ...) return connection:query_row(string.format(text, ...)) end
local function district() return uniform(1, DISTRICTS) end
local function other_warehouse()
   if sysbench.opt.warehouses == 1 then return home end
   local other = uniform(1, sysbench.opt.warehouses - 1)
   return other >= home and other + 1 or other
end

-- By number in four of ten, else the middle one of those with a last name.
local function customer_of(w, d)
   if uniform(1, 100) > 60 then return uneven(255, 1, customers()) end
   local found = query("SELECT c FROM customer WHERE w=%d AND d=%d AND last='%s' ORDER BY first", w, d,
      last_name(uneven(63, 0, NAMES - 1)))
   local c
   for _ = 1, math.ceil(found.nrows / 2) do c = found:fetch_row()[1] end
   return tonumber(c)
end

local function new_order()
   local d, c, count = district(), uneven(255, 1, customers()), uniform(5, 15)
   local wrong_item = uniform(1, 100) == 1
   -- In order of items, so that two orders wait for each other rather than deadlock.
   local lines, all_local = {}, 1
   for number = 1, count do
      local supply = uniform(1, 100) == 1 and other_warehouse() or home
      if supply ~= home then all_local = 0 end
      lines[number] = { i = uneven(1023, 1, items()), supply = supply, quantity = uniform(1, 10) }
   end
   table.sort(lines, function(a, b) return a.i < b.i end)

   query("BEGIN")
   value("SELECT tax FROM warehouse WHERE w=%d", home)
   local o = tonumber((value("SELECT next_o FROM district WHERE w=%d AND d=%d FOR UPDATE", home, d)))
   query("UPDATE district SET next_o=next_o+1 WHERE w=%d AND d=%d", home, d)
   value("SELECT discount FROM customer WHERE w=%d AND d=%d AND c=%d", home, d, c)
   query("INSERT INTO orders VALUES (%d,%d,%d,%d,NOW(),NULL,%d,%d)", home, d, o, c, count, all_local)
   query("INSERT INTO new_order VALUES (%d,%d,%d)", home, d, o)
   for number, line in ipairs(lines) do
      if wrong_item and number == count then
         query("ROLLBACK")
         return
      end
      local price = tonumber((value("SELECT price FROM item WHERE i=%d", line.i)))
      local quantity, info = value("SELECT quantity, dist_%02d FROM stock WHERE w=%d AND i=%d FOR UPDATE", d,
         line.supply, line.i)
      quantity = tonumber(quantity) - line.quantity
      if quantity < 10 then quantity = quantity + 91 end
      query("UPDATE stock SET quantity=%d, ytd=ytd+%d, order_cnt=order_cnt+1, remote_cnt=remote_cnt+%d " ..
         "WHERE w=%d AND i=%d", quantity, line.quantity, line.supply == home and 0 or 1, line.supply, line.i)
      query("INSERT INTO order_line VALUES (%d,%d,%d,%d,%d,%d,NULL,%d,%.2f,'%s')", home, d, o, number, line.i,
         line.supply, line.quantity, line.quantity * price, info)
   end
   query("COMMIT")
end

local function payment()
   local d, amount = district(), uniform(100, 500000) / 100
   local c_w, c_d = home, d
   if uniform(1, 100) > 85 then c_w, c_d = other_warehouse(), district() end
   query("BEGIN")
   query("UPDATE warehouse SET ytd=ytd+%.2f WHERE w=%d", amount, home)
   query("UPDATE district SET ytd=ytd+%.2f WHERE w=%d AND d=%d", amount, home, d)
   local c = customer_of(c_w, c_d)
   local credit = value("SELECT credit FROM customer WHERE w=%d AND d=%d AND c=%d FOR UPDATE", c_w, c_d, c)
   local note = ""
   if credit == "BC" then
      note = string.format(", data=LEFT(CONCAT('%d %d %d %d %d %.2f', data), 500)", c, c_d, c_w, d, home, amount)
   end
   query("UPDATE customer SET balance=balance-%.2f, ytd_payment=ytd_payment+%.2f, payment_cnt=payment_cnt+1%s " ..
      "WHERE w=%d AND d=%d AND c=%d", amount, amount, note, c_w, c_d, c)
   query("INSERT INTO history VALUES (%d,%d,%d,%d,%d,NOW(),%.2f,'%s')", c_d, c_w, c, home, d, amount,
      letters(12, 24))
   query("COMMIT")
end

local function order_status()
   local d = district()
   query("BEGIN")
   local c = customer_of(home, d)
   local o = value("SELECT o FROM orders WHERE w=%d AND d=%d AND c=%d ORDER BY o DESC LIMIT 1", home, d, c)
   if o then query("SELECT * FROM order_line WHERE w=%d AND d=%d AND o=%d", home, d, tonumber(o)) end
   query("COMMIT")
end

local function delivery()
   local carrier = uniform(1, 10)
   query("BEGIN")
   for d = 1, DISTRICTS do
      local o = value("SELECT o FROM new_order WHERE w=%d AND d=%d ORDER BY o LIMIT 1 FOR UPDATE", home, d)
      if o then
         o = tonumber(o)
         query("DELETE FROM new_order WHERE w=%d AND d=%d AND o=%d", home, d, o)
         local c = tonumber((value("SELECT c FROM orders WHERE w=%d AND d=%d AND o=%d", home, d, o)))
         query("UPDATE orders SET carrier=%d WHERE w=%d AND d=%d AND o=%d", carrier, home, d, o)
         query("UPDATE order_line SET delivery=NOW() WHERE w=%d AND d=%d AND o=%d", home, d, o)
         local sum = value("SELECT SUM(amount) FROM order_line WHERE w=%d AND d=%d AND o=%d", home, d, o)
         query("UPDATE customer SET balance=balance+%s, delivery_cnt=delivery_cnt+1 WHERE w=%d AND d=%d AND c=%d",
            sum, home, d, c)
      end
   end
   query("COMMIT")
end

local function stock_level()
   local d = district()
   local o = tonumber((value("SELECT next_o FROM district WHERE w=%d AND d=%d", home, d)))
   query("SELECT COUNT(DISTINCT s.i) FROM order_line l JOIN stock s ON s.w=l.supply_w AND s.i=l.i " ..
      "WHERE l.w=%d AND l.d=%d AND l.o>=%d AND s.quantity<%d", home, d, o - 20, uniform(10, 20))
end

-- Percent of the mix, keying time and mean think time in seconds: TPC-C 5.2.3 and 5.2.5.
local MIX = {
   { share = 45, run = new_order, keying = 18, thinking = 12 },
   { share = 43, run = payment, keying = 3, thinking = 12 },
   { share = 4, run = order_status, keying = 2, thinking = 10 },
   { share = 4, run = delivery, keying = 2, thinking = 5 },
   { share = 4, run = stock_level, keying = 2, thinking = 5 },
}
local function choose()
   local draw = uniform(1, 100)
   for _, kind in ipairs(MIX) do
      if draw <= kind.share then return kind end
      draw = draw - kind.share
   end
end

local chosen = {}

function thread_init()
   connection = sysbench.sql.driver():connect()
   home = sysbench.tid % sysbench.opt.warehouses + 1
   -- 21 s: the mean of keying and thinking over the mix.
   seat_terminals(sysbench.opt.terminals, 21)
end

-- The terminal has been keying this transaction in; now it runs, is thought about, and the next one is keyed in.
function event()
   local terminal = next_terminal()
   local kind = chosen[terminal] or choose()
   kind.run()
   chosen[terminal] = choose()
   terminal_rests(terminal, exponential(kind.thinking) + chosen[terminal].keying)
end

function thread_done() connection:disconnect() end
