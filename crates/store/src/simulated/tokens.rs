//! The holders of tokens. An exclusive token excludes all others, a reader's a writer's.

use crate::attributes::FileId;
use crate::event::Token;
use std::collections::BTreeMap;

#[derive(Default, Debug)]
pub(super) struct SimulatedTokens {
    /// Tokens by file and session.
    held: BTreeMap<(FileId, u64), Token>,
}

impl SimulatedTokens {
    /// Returns the sessions whose tokens conflict with `wanted` by `session`.
    pub fn against(&self, file: FileId, session: u64, wanted: Token) -> Vec<(u64, Token)> {
        let of_file = self.held.range((file, 0)..=(file, u64::MAX));
        of_file
            .filter(|((_, holder), held)| {
                *holder != session && (**held != wanted || wanted == Token::ExclusiveWrite)
            })
            .map(|((_, holder), held)| (*holder, *held))
            .collect()
    }
    /// Returns the sessions with buffers that a change of attributes by `session` must follow.
    pub fn against_change(&self, file: FileId, session: u64) -> Vec<(u64, Token)> {
        let mut against = self.against(file, session, Token::ExclusiveWrite);
        against.retain(|(_, held)| *held == Token::ExclusiveWrite);
        against
    }
    pub fn give(&mut self, file: FileId, session: u64, token: Token) {
        self.held.insert((file, session), token);
    }
    pub fn take_back(&mut self, file: FileId, session: u64) {
        self.held.remove(&(file, session));
    }
    /// Drops a session's tokens. Returns the files that it held exclusively.
    pub fn drop_session(&mut self, session: u64) -> Vec<FileId> {
        let alone = |(&(file, holder), held): (&(FileId, u64), &Token)| {
            (holder == session && *held == Token::ExclusiveWrite).then_some(file)
        };
        let files = self.held.iter().filter_map(alone).collect();
        self.held.retain(|(_, holder), _| *holder != session);
        files
    }
}
