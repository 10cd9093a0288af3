//! The helper as a program of its own, for tests. Users have it as a hidden command of `okeanos`.

fn main() {
    ceph::run_helper();
}
