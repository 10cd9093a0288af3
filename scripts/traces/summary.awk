# One row of the table in docs/TRACES.md. Input: the records of one trace. Variable: name.

{
    last = $1
    if ($4 != "none") syncs++
    if ($3 == 0) alone++
    else {
        bytes += $3
        many[$3]++
        writes++
    }
}

END {
    printf "| `%s` | %d | %d | %d | %d | %.1f | %d | %d | %d | %.0f | %.1f |\n", name, NR, writes, syncs, alone, \
        bytes / 1048576, size_at(0.5), size_at(0.9), size_at(1), last / 1000000, NR / (last / 1000000)
}

# The smallest size that so large a share of the writes does not exceed.
function size_at(share,    size, found, below, other) {
    found = -1
    for (size in many) {
        below = 0
        for (other in many) if (other + 0 <= size + 0) below += many[other]
        if (below >= share * writes && (found < 0 || size + 0 < found)) found = size + 0
    }
    return found
}
