//! Tests of file traces played on a volume: their results and their durations.

use engine::DataMode;
use testbeds::{Caching, PhaseLength, Stage, StageOptions, replay_files};
use workloads::{FileTrace, Files};

const TEXT: &str = "time_us,operation,path,to,offset_bytes,size_bytes\n\
    0,phase,first,,,\n100,mkdir,src,,,\n200,create,src/a,,,\n300,write,src/a,,0,5000\n400,fsync,src/a,,,\n\
    500,link,src/a,b,,\n600,rename,src/a,c,,\n700,symlink,d,src/x,,\n800,truncate,b,,100,\n900,attributes,c,,,\n\
    1000,rmdir,src,,,\n1100,unlink,b,,,\n1200,open,c,,,\n1300,read,c,,0,100\n2000,phase,second,,,\n\
    3000,create,e,,,\n4000,phase,end,,,\n";

fn stage() -> Stage {
    let mut options = StageOptions::of_discreet(DataMode::Ordered, Caching::Off);
    options.home.options.size = Some(256 << 20);
    options.journal_size = 16 << 20;
    Stage::build(&options).unwrap()
}

#[test]
fn a_trace_leaves_what_it_says_in_the_time_that_its_parts_should_take() {
    let trace = FileTrace::read("test", TEXT.as_bytes()).unwrap();
    let lengths =
        [PhaseLength { name: "first", seconds: 4.0 }, PhaseLength { name: "second", seconds: 3.0 }];
    let mut stage = stage();
    let report = stage
        .run(move |files| async move { replay_files(&files, &trace, &lengths).await })
        .unwrap();
    assert_eq!((report.bytes_written, report.bytes_read), (5000, 100));
    assert!(report.waited > 0.0, "an fsync takes time");
    assert!((report.seconds - report.waited - 7.0).abs() < 1e-3, "{report:?}");
    stage.remount().unwrap();
    stage.run(|files| async move {
        assert_eq!(files.length("c").await.unwrap(), 100);
        assert_eq!(files.length("e").await.unwrap(), 0);
        for gone in ["src", "b"] {
            assert!(files.length(gone).await.is_err(), "{gone}");
        }
    });
    stage.close_and_check().unwrap();
}

#[test]
fn an_unwanted_part_ends_the_replay_and_impossible_operations_are_named() {
    let trace = FileTrace::read("test", TEXT.as_bytes()).unwrap();
    let first = [PhaseLength { name: "first", seconds: 1.0 }];
    let stage = stage();
    stage.run(move |files| async move {
        replay_files(&files, &trace, &first).await.unwrap();
        assert!(files.length("e").await.is_err());
        let error = replay_files(&files, &trace, &first).await.unwrap_err();
        assert!(error.to_string().contains("Symlink"), "{error}");
    });
}
