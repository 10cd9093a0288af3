use super::formats;
use super::recorded::{Recorded, Timing};
use std::time::Duration;

pub struct Trace {
    pub timing: Timing,
    pub requests: Vec<Recorded>,
}

/// An error of a trace, and its line (from 1).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {problem}")]
pub struct BlockTraceError {
    pub line: usize,
    pub column: usize,
    pub problem: String,
}

impl Trace {
    /// Parses any of the known formats, recognized by the first line. Requests must lie within
    /// `size` bytes.
    pub fn parse(text: &str, size: u64) -> Result<Trace, BlockTraceError> {
        let format = formats::recognise(text).ok_or_else(|| BlockTraceError {
            line: 1,
            column: 1,
            problem: format!("not a trace that is known: {}", formats::KNOWN),
        })?;
        let mut requests: Vec<Recorded> = Vec::new();
        let mut body = !format.has_header;
        for (number, line) in text.lines().enumerate() {
            if !body {
                body = (format.ends_header)(line);
                continue;
            }
            if line.trim().is_empty() {
                continue;
            }
            let error = |(column, problem)| BlockTraceError { line: number + 1, column, problem };
            let Some(request) = (format.parse)(line).map_err(error)? else { continue };
            let end = request.at + request.length;
            if end > size {
                return Err(error((
                    1,
                    format!("the request ends at byte {end}, the disk has {size}"),
                )));
            }
            if let (Timing::Timestamps, Some(last)) = (format.timing, requests.last()) {
                // Traces are sorted but for small disorder among processors.
                let time = request.time.max(last.time);
                requests.push(Recorded { time, ..request });
            } else {
                requests.push(request);
            }
        }
        if requests.is_empty() {
            return Err(BlockTraceError {
                line: 1,
                column: 1,
                problem: "no request in it".to_owned(),
            });
        }
        if format.gaps_before {
            let gaps: Vec<Duration> = requests.iter().skip(1).map(|next| next.time).collect();
            let gaps = gaps.into_iter().chain([Duration::ZERO]);
            requests.iter_mut().zip(gaps).for_each(|(request, gap)| request.time = gap);
        }
        Ok(Trace { timing: format.timing, requests })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(text: &str) -> Recorded {
        Trace::parse(text, 1 << 40)
            .unwrap_or_else(|error| panic!("{text}: {error}"))
            .requests
            .remove(0)
    }

    #[test]
    fn every_format_is_recognised_and_read() {
        let write = first("time_us,op,offset_bytes,size_bytes\n12,W,4096,512\n");
        assert_eq!((write.is_write, write.at, write.length), (true, 4096, 512));
        assert_eq!(write.time, Duration::from_micros(12));
        let read = first("128166372003061629,usr,0,Read,7014609920,24576,41286\n");
        assert_eq!((read.is_write, read.at, read.length), (false, 7014609920, 24576));
        assert_eq!(read.measured, Some(Duration::from_nanos(4_128_600)));
        let dump = "BeginHeader\nDiskRead, TimeStamp, Process\nEndHeader\n  \
                    DiskRead,  263, Sys (4), 5652, 0xfffffa8, 0x000000200, 0x00001000, 1089, 0, 0\n";
        let read = first(dump);
        assert_eq!((read.at, read.length, read.time), (512, 4096, Duration::from_micros(263)));
        assert_eq!(read.measured, Some(Duration::from_micros(1089)));
        let write =
            first("fio version 2 iolog\n/dev/sda add\n/dev/sda open\n/dev/sda write 8192 4096\n");
        assert_eq!((write.is_write, write.at, write.length), (true, 8192, 4096));
        let read = first("fio version 3 iolog\n3 /dev/sda read 512 1024\n");
        assert_eq!((read.at, read.length, read.time), (512, 1024, Duration::from_millis(3)));
        let trace = "  8,0    3        1     0.000000000   697  G   W 223490 + 8 [kjournald]\n  \
                     8,0    3        3     0.000002500   697  D  WS 223490 + 8 [kjournald]\n";
        let write = first(trace);
        assert_eq!((write.is_write, write.at, write.length), (true, 223490 * 512, 4096));
        assert_eq!(write.time, Duration::from_nanos(2500));
        let measured = first("op,lbn,sectors,service_us,gap_us\nR,8,16,4067.0,9.0\n");
        assert_eq!((measured.at, measured.length), (4096, 8192));
        assert_eq!(measured.measured, Some(Duration::from_micros(4067)));
    }
    #[test]
    fn gaps_before_requests_become_those_after_the_ones_before() {
        let gaps = |unit: &str| {
            let text = format!("op,lbn,sectors,service_us,{unit}\nR,8,1,5,10\nW,9,1,5,20\n");
            let trace = Trace::parse(&text, 1 << 40).expect("a trace");
            trace.requests.iter().map(|request| request.time.as_micros()).collect::<Vec<_>>()
        };
        assert_eq!(gaps("gap_us"), [10, 20]);
        assert_eq!(gaps("gap_before_us"), [20, 0]);
    }
    #[test]
    fn garbage_is_refused_with_line_and_column() {
        let error = |text: &str| Trace::parse(text, 1 << 40).err().expect("an error");
        assert_eq!(error("once upon a time\n").line, 1);
        let broken = error("time_us,op,offset_bytes,size_bytes\n1,W,0,512\n2,W,zero,512\n");
        assert_eq!((broken.line, broken.column), (3, 5), "{broken}");
        let broken = error("op,lbn,sectors,service_us,gap_us\nX,8,16,1,1\n");
        assert_eq!((broken.line, broken.column), (2, 1), "{broken}");
        assert!(
            error("time_us,op,offset_bytes,size_bytes\n1,W\n")
                .problem
                .contains("ends before offset_bytes")
        );
        let text = "time_us,op,offset_bytes,size_bytes\n1,W,18446744073709551615,512\n";
        assert!(error(text).problem.contains("beyond"));
        assert!(
            error("time_us,op,offset_bytes,size_bytes\n1,W,1099511627776,512\n")
                .problem
                .contains("disk has")
        );
    }
}
