use journal::*;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use units::{LogBlock, TransactionId};

/// Blocks of each transaction, in order of ids: kept in memory that survives a power cut.
#[derive(Clone, Default, Debug)]
pub struct Map(Vec<(TransactionId, LogRuns)>);

/// WHERE: any free blocks, chosen when a plan is issued; each transaction's blocks are freed as
/// soon as it is released.
pub struct CapacitorLog {
    free: Vec<LogBlock>,
    /// Numbers of blocks that are reserved and not bound yet.
    reserved: BTreeMap<u32, u32>,
    capacity: u32,
    map: Rc<RefCell<Map>>,
    next: usize,
}

impl CapacitorLog {
    pub fn new(first: LogBlock, end: LogBlock) -> CapacitorLog {
        let free: Vec<_> = (first.get()..end.get()).map(LogBlock).collect();
        let capacity = free.len() as u32;
        CapacitorLog { free, reserved: BTreeMap::new(), capacity, map: Rc::default(), next: 0 }
    }
    pub fn map(&self) -> Rc<RefCell<Map>> {
        self.map.clone()
    }
}

impl LogSpace for CapacitorLog {
    fn capacity(&self) -> u32 {
        self.capacity
    }
    fn free(&self) -> u32 {
        self.free.len() as u32 - self.reserved.values().sum::<u32>()
    }
    fn reserve(&mut self, transaction: TransactionId, count: u32) -> Result<(), LogFull> {
        if count > self.free() {
            return Err(LogFull { needed: count, free: self.free() });
        }
        self.reserved.insert(transaction.0, count);
        Ok(())
    }
    fn bind(&mut self, transaction: TransactionId) -> LogRuns {
        let count = self.reserved.remove(&transaction.0).expect("room was reserved");
        let mut runs: Vec<LogRun> = Vec::new();
        for _ in 0..count {
            self.next += 5;
            let start = self.free.remove(self.next % self.free.len());
            runs.push(LogRun { start, count: 1 });
        }
        self.map.borrow_mut().0.push((transaction, LogRuns(runs.clone())));
        LogRuns(runs)
    }
    fn start_of(&self, transaction: TransactionId) -> Option<LogBlock> {
        self.map.borrow().start_of(transaction)
    }
    fn oldest(&self) -> Option<TransactionId> {
        self.map.borrow().0.first().map(|(transaction, _)| *transaction)
    }
    fn release(&mut self, transaction: TransactionId) {
        let map = &mut self.map.borrow_mut().0;
        let at = map
            .iter()
            .position(|(held, _)| *held == transaction)
            .expect("a transaction in the log");
        let (_, runs) = map.remove(at);
        self.free.extend(runs.0.iter().map(|run| run.start));
    }
}

impl Map {
    pub fn start_of(&self, transaction: TransactionId) -> Option<LogBlock> {
        self.0.iter().find(|(held, _)| *held == transaction).and_then(|(_, runs)| runs.start())
    }
    fn order(&self) -> impl Iterator<Item = LogBlock> + '_ {
        self.0.iter().flat_map(|(_, runs)| runs.0.iter().map(|run| run.start))
    }
}

impl LogWalk for Map {
    fn next(&self, at: LogBlock) -> Option<LogBlock> {
        self.order().skip_while(|block| *block != at).nth(1)
    }
    fn together(&self, _at: LogBlock) -> u32 {
        1
    }
    fn blocks(&self) -> u32 {
        self.order().count() as u32
    }
}
