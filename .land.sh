#!/bin/sh
set -e
cd /work/wt/disks
git fetch -q . && git rebase -q main && cargo check -q --workspace --all-targets 2>&1 | tail -20 && flock /work/wt/land.lock git -C /work/main merge --ff-only disks | tail -1
