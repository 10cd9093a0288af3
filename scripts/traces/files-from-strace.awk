# Turns the system calls of many processes on the files below one directory into a file trace
# (docs/TRACES.md). Input, sorted by time: process, seconds since the epoch, call as
# `strace -ttt -y -s 0` prints it. Variables: root, that directory, which is empty at first; cwd,
# where the first process begins.
#
# Where a plain read or write lands is known from the open file description: open makes one, dup and
# fork share it.

BEGIN {
    FDS = 256
    print "time_us,operation,path,to,offset_bytes,size_bytes"
}

$3 ~ /^phase/ {
    time = $2
    emit("phase", root "/" quoted(1))
    # Processes are counted anew.
    split("", directory)
    split("", description)
    next
}

{
    process = $1
    time = $2
    call = $3
    sub(/\(.*/, "", call)
    result = $0
    if (!sub(/.*\) += /, "", result) || result !~ /^[0-9]/) next
    result += 0
    if (!(process in directory)) directory[process] = cwd
    if (match($0, /AT_FDCWD<[^>]*>/)) directory[process] = substr($0, RSTART + 9, RLENGTH - 10)
    fd = argument_fd(1)
}

call ~ /^(clone|clone3|fork|vfork)$/ {
    directory[result] = directory[process]
    for (fd = 0; fd < FDS; fd++) if ((process, fd) in description) description[result, fd] = description[process, fd]
    next
}
call == "chdir" { directory[process] = absolute(directory[process], quoted(1)); next }
call == "fchdir" { directory[process] = path_of(1); next }

call ~ /^(open|openat|creat)$/ {
    # What was opened, links followed, stands at the end.
    path = $0
    sub(/.* = [0-9]+</, "", path)
    sub(/( \(deleted\))?>.*/, "", path)
    description[process, result] = ++descriptions
    position[descriptions] = 0
    appends[descriptions] = /O_APPEND/ ? 1 : 0
    if (!inside(path)) next
    if (path in bytes) {
        if (/O_TRUNC/ || call == "creat") {
            bytes[path] = 0
            emit("truncate", path, "", 0)
        } else emit("open", path)
    } else if (/O_CREAT/ || call == "creat") {
        bytes[path] = 0
        emit("create", path)
    }
    next
}
call ~ /^dup/ || call == "fcntl" && /F_DUPFD/ {
    if ((process, fd) in description) description[process, result] = description[process, fd]
    else delete description[process, result]
    next
}
call == "lseek" {
    if (path_of(1) ~ /^\// && (process, fd) in description) position[description[process, fd]] = result
    next
}

call == "copy_file_range" || call == "sendfile" {
    # copy_file_range names the source first, sendfile the target.
    moved("read", call == "sendfile" ? 2 : 1)
    moved("write", call == "sendfile" ? 1 : 2)
    next
}
call ~ /^(read|readv|write|writev)$/ { moved(call ~ /^read/ ? "read" : "write", 1); next }
call ~ /^p(read|write)/ {
    offset = $0
    sub(/\) += .*/, "", offset)
    sub(/.*, /, "", offset)
    touched(call ~ /^pread/ ? "read" : "write", path_of(1), offset + 0, result)
    next
}

call == "ftruncate" || call == "truncate" {
    path = call == "truncate" ? absolute(directory[process], quoted(1)) : path_of(1)
    size = $0
    sub(/\) += .*/, "", size)
    sub(/.*, /, "", size)
    if (inside(path)) {
        bytes[path] = size + 0
        emit("truncate", path, "", size)
    }
    next
}
call ~ /^(fsync|fdatasync)$/ { if (inside(path_of(1))) emit(call, path_of(1)); next }
call ~ /^(chmod|fchmod|fchmodat|utimensat)$/ {
    path = call == "fchmod" || /utimensat\([0-9]+<[^>]*>, NULL/ ? path_of(1) : absolute(base_of(1), quoted(1))
    if (inside(path)) emit("attributes", path)
    next
}

call ~ /^mkdir/ { named("mkdir"); next }
call == "rmdir" || call == "unlinkat" && /AT_REMOVEDIR/ { named("rmdir"); next }
call ~ /^unlink/ { delete bytes[named("unlink")]; next }
call ~ /^(rename|link)/ {
    path = absolute(base_of(1), quoted(1))
    to = absolute(base_of(2), quoted(2))
    if (!inside(path) || !inside(to)) next
    emit(call ~ /^rename/ ? "rename" : "link", path, relative(to))
    bytes[to] = bytes[path]
    if (call ~ /^rename/) delete bytes[path]
    next
}
call ~ /^symlink/ {
    path = absolute(base_of(1), quoted(2))
    if (inside(path)) emit("symlink", path, quoted(1))
    next
}

function named(operation,    path) {
    path = absolute(base_of(1), quoted(1))
    if (inside(path)) emit(operation, path)
    return path
}

# A read or write at the position of an open file description.
function moved(operation, which,    path, at, fd) {
    path = path_of(which)
    fd = argument_fd(which)
    # Pipes and sockets are not followed, and may have the number of a file that was closed.
    if (path !~ /^\// || !((process, fd) in description)) return
    at = description[process, fd]
    if (operation == "write" && appends[at] && path in bytes) position[at] = bytes[path]
    touched(operation, path, position[at], result)
    position[at] += result
}
function touched(operation, path, offset, size) {
    if (!inside(path) || size == 0) return
    emit(operation, path, "", offset, size)
    if (operation == "write" && offset + size > bytes[path]) bytes[path] = offset + size
}

function emit(operation, path, to, offset, size) {
    if (first == "") first = time
    printf "%.0f,%s,%s,%s,%s,%s\n", (time - first) * 1000000, operation, relative(path), to, offset, size
}
function inside(path) { return index(path, root "/") == 1 }
function relative(path) { return substr(path, length(root) + 2) }

# The argument's place among those with a path, `3</path>`, from 1.
function path_of(which,    rest) {
    rest = $0
    while (which-- > 0) if (!sub(/^[^<]*</, "", rest)) return ""
    sub(/( \(deleted\))?>.*/, "", rest)
    return rest
}
function argument_fd(which,    rest) {
    rest = $0
    while (--which > 0) sub(/^[^<]*<[^>]*>/, "", rest)
    if (!match(rest, /[(, ][0-9]+</)) return -1
    return substr(rest, RSTART + 1, RLENGTH - 2) + 0
}
# The directory that the name at this place is relative to.
function base_of(which) { return $0 ~ /at2?\(/ && call != "unlink" ? path_of(which) : directory[process] }
# The name at this place among those in quotes.
function quoted(which,    part) {
    split($0, part, "\"")
    return part[2 * which]
}
function absolute(base, name,    part, count, at, path) {
    if (name !~ /^\//) name = base "/" name
    count = split(name, part, "/")
    path = ""
    for (at = 1; at <= count; at++) {
        if (part[at] == "" || part[at] == ".") continue
        if (part[at] == "..") sub(/\/[^\/]*$/, "", path)
        else path = path "/" part[at]
    }
    return path
}
