//! Tests of `okeanos-lab` from outside: one program, because linking each costs more than running
//! it. The support for scripts and mounts is that of the tests of `okeanos`.

#[path = "../../../cli/tests/all/common/mod.rs"]
#[expect(dead_code, reason = "for the tests of both programs")]
mod common;
mod disk;
mod exploring;
mod fingerprint;
mod growth;
mod nbd;
mod pages;
#[path = "../../../cli/tests/all/programs/mod.rs"]
mod programs;
mod reproduce;
#[path = "../../../cli/tests/all/rig/mod.rs"]
#[expect(dead_code, reason = "for the tests of both programs")]
mod rig;
mod workloads;
