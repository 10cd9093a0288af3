# The files that a file trace leaves, with their sizes. Input: the trace, fields split at commas.

$2 == "create" { bytes[$3] = 0 }
$2 == "write" && $5 + $6 > bytes[$3] { bytes[$3] = $5 + $6 }
$2 == "truncate" { bytes[$3] = $5 + 0 }
$2 == "unlink" { delete bytes[$3] }
$2 == "rename" || $2 == "link" { bytes[$4] = bytes[$3] }
$2 == "rename" { delete bytes[$3] }
END { for (path in bytes) print path, bytes[path] }
