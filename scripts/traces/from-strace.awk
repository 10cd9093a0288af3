# Turns system calls on a log file into a log trace (docs/TRACES.md). Input, sorted by time: thread,
# seconds since the epoch, call as `strace -ttt -y -s 0` prints it. Variables: log_file, a pattern
# of paths; segment_bytes, the size of the files that a log is cut into (0: it is one file); from,
# seconds since the epoch, and seconds. What lies outside these is left out.

BEGIN { OFS = "," }

/ = -1 / { next }

{
    time = $2
    call = $3
    sub(/\(.*/, "", call)
    # The file is in the last <> of an open, in the first of the others.
    path = $0
    if (call == "openat") sub(/.*</, "", path)
    else sub(/^[^<]*</, "", path)
    sub(/>.*/, "", path)
    if (path !~ log_file) next
}

call == "openat" {
    how[path] = /O_DSYNC/ ? "odsync" : /O_SYNC/ ? "osync" : "none"
    next
}

time < from || time > from + seconds { next }

call ~ /^pwrite/ {
    # pwrite64(5<path>, ""..., size, offset) = written
    count = split($0, word, " ")
    offset = word[count - 2]
    sub(/\)$/, "", offset)
    emit()
    thread = $1
    at = time
    place = start_of(path) + offset
    size = word[count]
    sync = path in how ? how[path] : "none"
    next
}

call == "fsync" || call == "fdatasync" {
    # Right after the write, by the same thread: one record.
    if (size > 0 && sync == "none" && thread == $1) {
        sync = call
        next
    }
    end = place + size
    emit()
    thread = $1
    at = time
    place = end
    size = 0
    sync = call
    next
}

END { emit() }

function emit() {
    if (at == "") return
    if (first == "") first = at
    printf "%.0f,%.0f,%d,%s\n", (at - first) * 1000000, place, size, sync
    at = ""
}

# PostgreSQL names the files of its log by timeline, and in base 16 their number. There are 8 digits
# for the upper part, 8 for the lower, which counts to 4 GiB. Earlier bytes than the first file's
# are not there.
function start_of(path,    name, number) {
    if (!segment_bytes) return 0
    name = path
    sub(/.*\//, "", name)
    number = hexadecimal(substr(name, 9, 8)) * (4294967296 / segment_bytes) + hexadecimal(substr(name, 17, 8))
    if (first_number == "") first_number = number
    return (number - first_number) * segment_bytes
}

function hexadecimal(digits,    sum, at) {
    sum = 0
    for (at = 1; at <= length(digits); at++) sum = sum * 16 + index("0123456789ABCDEF", substr(digits, at, 1)) - 1
    return sum
}
