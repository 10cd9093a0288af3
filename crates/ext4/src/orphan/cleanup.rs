//! Cleanup after a crash: orphans without links are freed, truncates are finished.

use super::list::OrphanList;
use crate::{Error, Inode, Result, Volume};
use engine::EngineError;
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
    /// space. One that cannot be read, or cannot be freed here, is left as it is: it must not keep
    /// the volume from being opened.
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
                Err(error) if self.may_stay_orphan(&error) => {
                    report.damaged += 1;
                    warnings.push(format!("the list of orphans cannot be read: {error}"));
                    // Damage has been noted. Without the list e2fsck alone finds its inodes.
                    if !matches!(error, Error::Corrupt { .. }) {
                        self.mark_damage();
                    }
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
            Err(error) if self.may_stay_orphan(&error) => {
                report.damaged += 1;
                warnings.push(format!("the orphan file cannot be read: {error}"));
                if !matches!(error, Error::Corrupt { .. }) {
                    self.mark_damage();
                }
            }
            Err(error) => return Err(error),
        }
        for number in numbers {
            self.clean_up_orphan(number, &mut report, warnings).await?;
            match self.free_values().await {
                // Noted; the inode stays an orphan.
                Err(error) if self.may_stay_orphan(&error) => report.damaged += 1,
                freed => freed?,
            }
        }
        Ok(report)
    }

    /// Whether an inode that met this error may be left as the orphan that it is: the error is that
    /// inode's alone, and nothing was changed in part, which would have ended the journal.
    pub(crate) fn may_stay_orphan(&self, error: &Error) -> bool {
        match error {
            Error::Corrupt { .. } | Error::Refused(_) => true,
            Error::Engine(EngineError::Device(_)) => {
                self.engine.check().is_ok() && !units::fault!("unreadable-orphan-hinders")
            }
            _ => false,
        }
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
            Err(error) if self.may_stay_orphan(&error) => {
                leave(number, &error, report, warnings);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let _guard = inode.lock.write().await;
        let has_links = inode.fields.borrow().links > 0;
        // It may have been read before the orphans were.
        inode.cut_unfinished.set(has_links);
        let done = match has_links {
            true => self.finish_truncate_locked(&inode).await,
            false => self.free_locked(&inode).await,
        };
        match done {
            Ok(()) if has_links => report.truncated += 1,
            Ok(()) => report.freed += 1,
            // The inode is unchanged, and stays an orphan.
            Err(error @ Error::Refused(_)) => {
                self.mark_damage();
                let why = format!("it is an orphan that cannot be freed here: {error}");
                report.damaged += 1;
                warnings.push(Error::corrupt_inode(number, why).to_string());
            }
            Err(Error::Corrupt { .. }) => {
                report.damaged += 1;
                self.drop_orphan(&inode).await.or_else(|error| {
                    match self.may_stay_orphan(&error) {
                        true => Ok(()),
                        false => Err(error),
                    }
                })?;
            }
            Err(error) if self.may_stay_orphan(&error) => {
                leave(number, &error, report, warnings);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Removes a damaged inode from the orphans, and leaves its space to e2fsck.
    async fn drop_orphan(&self, inode: &Inode) -> Result<()> {
        let _table = self.hold(&[inode]).await?;
        let mut handle = self.engine.start(self.credits_orphan()).await?;
        let removed = match self.orphan_remove(&mut handle, inode).await {
            Ok(()) => self.store(&mut handle, inode).await,
            failed => failed,
        };
        handle.stop();
        removed
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

/// Leaves an orphan that cannot be read: the next opening tries again.
fn leave(
    number: InodeNumber,
    error: &Error,
    report: &mut OrphanReport,
    warnings: &mut Vec<String>,
) {
    report.damaged += 1;
    warnings.push(format!("{number} is an orphan that cannot be freed now: {error}"));
}
