//! Events that a block's current image waits for.

use units::Owner;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BlockState {
    /// No image to write home: home has it, or an older image is what is written home, or the
    /// running transaction freed it.
    Settled,
    /// Data that no commit waits for: newer than home, in no transaction.
    Unordered(Owner),
    /// The commit of the running transaction. `ordered`: data that must be home before.
    /// `unordered`: changed once more since, for no transaction.
    Running { ordered: Option<Owner>, unordered: Option<Owner> },
}

impl BlockState {
    pub fn is_running(self) -> bool {
        matches!(self, BlockState::Running { .. })
    }
    pub fn ordered(self) -> Option<Owner> {
        match self {
            BlockState::Running { ordered, .. } => ordered,
            BlockState::Settled | BlockState::Unordered(_) => None,
        }
    }
    pub fn unordered(self) -> Option<Owner> {
        match self {
            BlockState::Settled => None,
            BlockState::Unordered(owner) => Some(owner),
            BlockState::Running { unordered, .. } => unordered,
        }
    }

    /// Returns the state with the block in the running transaction.
    pub fn joined(self) -> BlockState {
        BlockState::Running { ordered: self.ordered(), unordered: self.unordered() }
    }
    /// Returns the state in which the running transaction writes it home before it commits.
    pub fn ordered_for(self, owner: Owner) -> BlockState {
        BlockState::Running { ordered: Some(owner), unordered: self.unordered() }
    }
    /// Returns the state after a change for no transaction.
    pub fn unordered_for(self, owner: Owner) -> BlockState {
        match self {
            BlockState::Settled | BlockState::Unordered(_) => BlockState::Unordered(owner),
            BlockState::Running { ordered, .. } => {
                BlockState::Running { ordered, unordered: Some(owner) }
            }
        }
    }
    /// Returns the state after home, or a transaction, has taken what was changed for none.
    pub fn without_unordered(self) -> BlockState {
        match self {
            BlockState::Settled | BlockState::Unordered(_) => BlockState::Settled,
            BlockState::Running { ordered, .. } => BlockState::Running { ordered, unordered: None },
        }
    }
    /// Returns the state in which the running transaction no longer orders it. `logs`: but in the
    /// log.
    pub fn without_order(self, logs: bool) -> BlockState {
        match logs {
            true => BlockState::Running { ordered: None, unordered: self.unordered() },
            false => self.outside(),
        }
    }
    /// Returns the state after the running transaction was locked.
    pub fn outside(self) -> BlockState {
        self.unordered().map_or(BlockState::Settled, BlockState::Unordered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Owner = Owner(1);
    const B: Owner = Owner(2);

    /// Covers all states that can be reached: each change touches only the part that it names.
    #[test]
    fn each_change_of_a_block_state_touches_only_what_it_names() {
        let options = [None, Some(A)];
        let running = options
            .map(|ordered| options.map(|unordered| BlockState::Running { ordered, unordered }));
        for state in
            [BlockState::Settled, BlockState::Unordered(A)].into_iter().chain(running.concat())
        {
            let (ordered, unordered) = (state.ordered(), state.unordered());
            let facts =
                |state: BlockState| (state.is_running(), state.ordered(), state.unordered());
            assert_eq!(facts(state.joined()), (true, ordered, unordered));
            assert_eq!(facts(state.ordered_for(B)), (true, Some(B), unordered));
            assert_eq!(facts(state.unordered_for(B)), (state.is_running(), ordered, Some(B)));
            assert_eq!(facts(state.without_unordered()), (state.is_running(), ordered, None));
            assert_eq!(facts(state.without_order(true)), (true, None, unordered));
            assert_eq!(facts(state.without_order(false)), (false, None, unordered));
            assert_eq!(facts(state.outside()), (false, None, unordered));
        }
    }
}
