//! A disk's requests, written to a file in a format that `okeanos-lab disk replay` reads.

use crate::watched::Watch;
use device::{LocalFuture, Operation, World};
use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;

/// Columns of MSR Cambridge's traces; a unit of time is 100 ns.
const HEADER: &str = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime";

pub struct TraceFile {
    world: Rc<dyn World>,
    out: Rc<RefCell<BufWriter<File>>>,
}

impl TraceFile {
    /// Creates a trace. `append`: to the trace of another disk, before a power cut.
    pub fn new(world: Rc<dyn World>, path: &Path, append: bool) -> io::Result<TraceFile> {
        let file = OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(!append)
            .append(append)
            .open(path)?;
        let mut out = BufWriter::new(file);
        if !append {
            writeln!(out, "{HEADER}")?;
        }
        Ok(TraceFile { world, out: Rc::new(RefCell::new(out)) })
    }
}

impl Watch for TraceFile {
    /// Writes one line when the request is done; none if its future was dropped. A trace that
    /// cannot be written ends the run: it was requested.
    fn watch<T: 'static>(
        &self,
        operation: Operation,
        place: Range<u64>,
        request: LocalFuture<T>,
    ) -> LocalFuture<T> {
        let (world, out) = (self.world.clone(), self.out.clone());
        let (at, length) = (place.start, place.end - place.start);
        Box::pin(async move {
            let begin = world.now();
            let result = request.await;
            let took = world.now().since(begin).as_nanos() / 100;
            let line = writeln!(
                out.borrow_mut(),
                "{},,,{operation:?},{at},{length},{took}",
                begin.0 / 100
            );
            line.expect("the trace of requests can be written");
            result
        })
    }
}
