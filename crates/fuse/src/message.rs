//! Memory that requests are read into.
//!
//! A short request is copied out of it. A long one takes the memory along, and gives it back when it is done. So no
//! byte of it is copied, and the next one of its kind meets memory that the processor knows. Whoever counts what
//! requests hold counts such memory as a whole ([`Bytes::held`]).

use std::cell::RefCell;
use std::ops::Deref;
use std::rc::Rc;

/// From here on copying costs more than it saves memory.
const LONG: usize = 256 << 10;
/// Kept for long requests to come.
const SPARES_MAX: usize = 4;

/// The bytes of a request.
#[derive(Debug)]
pub(crate) struct Bytes {
    memory: Vec<u8>,
    length: usize,
    /// Whose memory it is.
    spares: Option<Rc<Spares>>,
}

/// Memory for the next messages, each as long as the longest may be.
#[derive(Debug)]
pub(crate) struct Spares {
    length: usize,
    free: RefCell<Vec<Vec<u8>>>,
}

impl Spares {
    pub fn new(length: usize) -> Rc<Spares> {
        Rc::new(Spares { length, free: RefCell::default() })
    }
    pub fn take(&self) -> Vec<u8> {
        self.free.borrow_mut().pop().unwrap_or_else(|| vec![0; self.length])
    }
    /// The message that stands in the first `length` bytes of `memory`, which is replaced if the message takes it along.
    pub fn message(self: &Rc<Spares>, memory: &mut Vec<u8>, length: usize) -> Bytes {
        if length < LONG {
            return Bytes::from(memory[..length].to_vec());
        }
        let memory = std::mem::replace(memory, self.take());
        Bytes { memory, length, spares: Some(self.clone()) }
    }
}

impl Bytes {
    /// Of memory, in bytes.
    pub fn held(&self) -> usize {
        self.memory.len()
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(memory: Vec<u8>) -> Bytes {
        Bytes { length: memory.len(), memory, spares: None }
    }
}
impl Clone for Bytes {
    fn clone(&self) -> Bytes {
        Bytes::from(self.to_vec())
    }
}
impl Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.memory[..self.length]
    }
}
impl Drop for Bytes {
    fn drop(&mut self) {
        let Some(spares) = self.spares.take() else { return };
        let mut free = spares.free.borrow_mut();
        if free.len() < SPARES_MAX {
            free.push(std::mem::take(&mut self.memory));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_messages_are_not_copied_and_their_memory_comes_back_within_bounds() {
        let spares = Spares::new(1 << 20);
        let mut memory = spares.take();
        memory[LONG] = 7;
        let place = memory.as_ptr();
        let short = spares.message(&mut memory, LONG - 1);
        assert!(short.held() == LONG - 1 && memory.as_ptr() == place);
        let long = spares.message(&mut memory, LONG + 1);
        assert!(long.as_ptr() == place && long.len() == LONG + 1 && long[LONG] == 7);
        assert!(long.held() == 1 << 20 && memory.as_ptr() != place && memory.len() == 1 << 20);
        assert_eq!(long.clone().held(), LONG + 1);
        drop(long);
        let again = spares.take();
        assert_eq!(again.as_ptr(), place);
        let many: Vec<Bytes> = (0..50).map(|_| spares.message(&mut memory, 1 << 20)).collect();
        drop(many);
        assert_eq!(spares.free.borrow().len(), SPARES_MAX);
    }
}
