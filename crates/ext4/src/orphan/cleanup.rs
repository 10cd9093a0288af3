//! Cleanup after a crash: orphans without links are freed, truncates are finished.

use super::list::OrphanList;
use crate::{Error, Result, Volume};
use format::ext4::superblock::state;
use std::rc::Rc;
use units::InodeNumber;

/// Orphans found when the volume was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OrphanReport {
    pub freed: u32,
    pub truncated: u32,
    /// Entries that refer to no inode, or whose inode is damaged.
    pub damaged: u32,
}

impl Volume {
    /// Frees or finishes all orphans. Damaged entries are dropped and noted: e2fsck finds their
    /// space.
    pub(crate) async fn clean_up_orphans(
        self: &Rc<Self>,
        warnings: &mut Vec<String>,
    ) -> Result<OrphanReport> {
        let mut report = OrphanReport::default();
        let mut numbers = Vec::new();
        let trusted = !self.damage_was_found();
        if !trusted {
            // Freeing by the list might free blocks in use.
            self.forget_orphan_list().await?;
        } else {
            match self.read_orphan_list().await {
                Ok(list) => numbers = list,
                Err(Error::Corrupt { .. }) => {
                    report.damaged += 1;
                    self.forget_orphan_list().await?;
                }
                Err(error) => return Err(error),
            }
        }
        self.orphans.borrow_mut().list = OrphanList::from_disk(&numbers);
        match self.read_orphan_file().await {
            Ok(Some((file, found))) => {
                let mut orphans = self.orphans.borrow_mut();
                orphans.file = Some(file);
                orphans.in_file.extend(found.iter().copied());
                if trusted {
                    numbers.extend(found.iter().map(|(number, _)| *number));
                }
            }
            Ok(None) => {}
            Err(Error::Corrupt { .. }) => report.damaged += 1,
            Err(error) => return Err(error),
        }
        for number in numbers {
            self.clean_up_orphan(number, &mut report, warnings).await?;
            match self.free_values().await {
                // Noted; the inode stays an orphan.
                Err(Error::Corrupt { .. } | Error::Refused(_)) => report.damaged += 1,
                freed => freed?,
            }
        }
        Ok(report)
    }

    /// Whether a structure of the volume contradicted itself since e2fsck last looked. The kernel
    /// trusts no orphans even after a mere abort (`ext4_orphan_cleanup`). But a failed write only
    /// ends the log early, and what was replayed of it is as sound as after a power cut. The count
    /// of errors rises with each that is found.
    fn damage_was_found(&self) -> bool {
        let superblock = self.superblock.borrow();
        superblock.state & state::ERROR != 0 && superblock.error_count != 0
    }

    async fn clean_up_orphan(
        self: &Rc<Self>,
        number: InodeNumber,
        report: &mut OrphanReport,
        warnings: &mut Vec<String>,
    ) -> Result<()> {
        let inode = match self.inode(number).await {
            Ok(inode) => inode,
            Err(Error::Corrupt { .. } | Error::Refused(_)) => {
                report.damaged += 1;
                let mut handle = self.engine.start(self.credits_orphan()).await?;
                self.remove_from_orphan_file(&mut handle, number);
                handle.stop();
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let _guard = inode.lock.write().await;
        let has_links = inode.fields.borrow().links > 0;
        let done = match has_links {
            true => self.finish_truncate_locked(&inode).await,
            false => self.free_locked(&inode).await,
        };
        match done {
            Ok(()) if has_links => report.truncated += 1,
            Ok(()) => report.freed += 1,
            // The inode is unchanged, and stays an orphan: one that cannot be freed must not keep
            // the volume from being opened.
            Err(Error::Refused(code)) => {
                report.damaged += 1;
                let why =
                    format!("it is an orphan that cannot be freed here: {}", Error::Refused(code));
                let found = self.note_damage(Error::corrupt_inode(number, why));
                warnings.push(found.to_string());
            }
            Err(Error::Corrupt { .. }) => {
                report.damaged += 1;
                let mut handle = self.engine.start(self.credits_orphan()).await?;
                let removed = self.orphan_remove(&mut handle, &inode).await;
                handle.stop();
                removed?;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn forget_orphan_list(self: &Rc<Self>) -> Result<()> {
        if self.superblock.borrow().last_orphan != 0 {
            let mut handle = self.engine.start(self.credits_orphan()).await?;
            self.set_first_orphan(&mut handle, None);
            handle.stop();
        }
        Ok(())
    }
}
