//! Registered hosts: those whose journals may have changes that the store lacks. Each has a file in
//! `.okeanos/hosts`, and has it locked while it runs and its recovery is complete.

use super::own_directory::OwnDirectory;
use crate::event::{HostPhase, Identity};
use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::ops::Range;

const ALL: Range<u64> = 0..u64::MAX;

pub(super) struct LocalHosts {
    hosts: OwnDirectory,
    name: String,
    /// Locked as long as it is open, unless the host recovers.
    own: RefCell<Option<File>>,
}

impl LocalHosts {
    pub fn new(hosts: OwnDirectory, identity: &Identity) -> LocalHosts {
        LocalHosts { hosts, name: identity.0.clone(), own: RefCell::default() }
    }

    pub fn register(&self, phase: HostPhase) -> io::Result<()> {
        let mut own = self.own.borrow_mut();
        let file = match own.take() {
            Some(file) => file,
            None => {
                let file = self.hosts.open_or_make(&self.name)?;
                // All hosts may end with this machine.
                self.hosts.sync()?;
                file
            }
        };
        let file = own.insert(file);
        disks::lock_range(file, (phase == HostPhase::Running).then_some(true), &ALL)
    }
    pub fn unregister(&self) -> io::Result<()> {
        // Locked until its name is gone.
        let _own = self.own.take();
        match self.hosts.remove(&self.name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// Returns whether another host is registered, alive or not.
    pub fn has_others(&self) -> io::Result<bool> {
        Ok(self.hosts.names()?.iter().any(|name| *name != self.name))
    }
    /// Returns whether another host has ended without a clean end, or has not recovered yet.
    pub fn has_dead(&self) -> io::Result<bool> {
        for name in self.hosts.names()?.iter().filter(|name| **name != self.name) {
            let file = match self.hosts.open_to_write(name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                opened => opened?,
            };
            let is_alive = disks::range_lock_against(&file, true, &ALL)?.is_some();
            if !is_alive && self.hosts.is_at(name, &file) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
