# Settings of the POSIX suites, for the scripts that run them. To be sourced.

pjdfstest_settings() { # ANOTHER-FILE-SYSTEM MAY-REMOUNT
    cat <<END
[features]
secondary_fs = "$1"
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.02
allow_remount = $2
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
END
}

fsx_settings() { # WEIGHT-OF-MAPPED-ACCESS WEIGHT-OF-FALLOCATE
    cat <<END
flen = 1000000
[weights]
close_open = 2
invalidate = 1
mapread = $1
mapwrite = $1
read = 10
write = 10
truncate = 3
fsync = 1
fdatasync = 1
posix_fallocate = $2
punch_hole = 3
sendfile = 2
posix_fadvise = 1
copy_file_range = 2
END
}
