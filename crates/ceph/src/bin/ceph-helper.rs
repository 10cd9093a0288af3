//! The helper as its own program, for tests. Users have it as a hidden command of `okeanos`.

fn main() {
    ceph::run_helper();
}
