//! Behaviour of the real world, as the traits promise, against files, pipes and signals of this
//! machine: over an io_uring, and over threads and epoll.

use device::{Buffer, Durability, World};
use runtime::{
    Either, File, IoChoice, RealWorld, Ring, Slice, join_all, race, spawn_with_result, yield_now,
};
use std::cell::Cell;
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::rc::Rc;
use std::time::Duration;
use units::Instant;

over_both!(
    what_is_written_is_read_back,
    more_parts_than_one_call_takes_are_written_in_order,
    an_error_comes_back_as_its_errno,
    ten_thousand_operations_at_once_all_complete,
    a_dropped_operation_completes_and_harms_nothing,
    timers_wake_in_their_order_and_not_early,
    waiting_awake_also_ends_with_timers_and_completions,
    answers_that_come_soon_are_polled_for,
    what_was_only_sent_is_no_reason_to_poll,
    an_idle_world_takes_no_processor_time,
    tasks_that_never_rest_do_not_hold_up_the_ring,
    a_poll_stream_reports_every_change,
    sent_messages_arrive_whole_and_failures_are_counted,
    a_message_sent_last_still_goes_out,
    termination_signals_are_awaited,
    an_interrupted_wait_goes_on,
    a_run_begins_with_the_time_that_has_passed_since_the_last,
    a_dropped_write_keeps_its_buffer_until_it_is_done,
);

fn new_file() -> File {
    Rc::new(tempfile::tempfile().unwrap().into())
}
fn filled(length: usize, byte: u8) -> Rc<Buffer> {
    Rc::new(Buffer::copy_of(&vec![byte; length]))
}
fn after(world: &RealWorld, milliseconds: u64) -> Instant {
    world.now().plus(Duration::from_millis(milliseconds))
}

fn over<T: 'static>(io: IoChoice, script: impl AsyncFnOnce(RealWorld) -> T + 'static) -> T {
    let world = RealWorld::over(io).unwrap();
    let inner = world.clone();
    world.run(async move { script(inner).await })
}

fn what_is_written_is_read_back(io: IoChoice) {
    let world = RealWorld::over(io).unwrap();
    let ring = world.ring().clone();
    world.run(async move {
        let file = new_file();
        let parts = [filled(512, 1), filled(1024, 2), filled(512, 3)];
        ring.write(&file, 512, &parts, Durability::Cached).await.unwrap();
        ring.write(&file, 1024, &[filled(512, 4)], Durability::Durable).await.unwrap();
        ring.sync_data(&file).await.unwrap();
        let back = ring.read(&file, 0, 2560).await.unwrap();
        let sectors: Vec<u8> = back.chunks(512).map(|sector| sector[100]).collect();
        assert_eq!(sectors, [0, 1, 4, 2, 3]);
        ring.allocate(&file, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, 0, 4096)
            .await
            .unwrap();
        assert!(ring.read(&file, 0, 2560).await.unwrap().iter().all(|byte| *byte == 0));
        let short = ring.read(&file, 2048, 1024).await.unwrap_err();
        assert_eq!(short.kind(), std::io::ErrorKind::UnexpectedEof);
    });
}

fn more_parts_than_one_call_takes_are_written_in_order(io: IoChoice) {
    let world = RealWorld::over(io).unwrap();
    let ring = world.ring().clone();
    world.run(async move {
        let file = new_file();
        let parts: Vec<Rc<Buffer>> = (0..2500).map(|index| filled(512, index as u8)).collect();
        ring.write(&file, 0, &parts, Durability::Durable).await.unwrap();
        let back = ring.read(&file, 0, 2500 * 512).await.unwrap();
        assert!(back.chunks(512).enumerate().all(|(index, sector)| sector == [index as u8; 512]));
    });
}

fn an_error_comes_back_as_its_errno(io: IoChoice) {
    let world = RealWorld::over(io).unwrap();
    let ring = world.ring().clone();
    let read_only = tempfile::NamedTempFile::new().unwrap();
    let file: File = Rc::new(std::fs::File::open(read_only.path()).unwrap().into());
    let result =
        world.run(async move { ring.write(&file, 0, &[filled(512, 1)], Durability::Cached).await });
    assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EBADF));
}

fn ten_thousand_operations_at_once_all_complete(io: IoChoice) {
    let world = RealWorld::over(io).unwrap();
    let inner = world.clone();
    world.run(async move {
        let file = new_file();
        let tasks: Vec<_> = (0..10_000u64)
            .map(|index| {
                let (ring, file) = (inner.ring().clone(), file.clone());
                spawn_with_result(&inner, async move {
                    let at = index * 512;
                    ring.write(&file, at, &[filled(512, index as u8)], Durability::Cached)
                        .await
                        .unwrap();
                    let back = ring.read(&file, at, 512).await.unwrap();
                    assert!(back.iter().all(|byte| *byte == index as u8), "{index}");
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
    assert!(world.ring().statistics().completions >= 20_000);
}

fn a_dropped_operation_completes_and_harms_nothing(io: IoChoice) {
    let world = RealWorld::over(io).unwrap();
    let inner = world.clone();
    world.run(async move {
        let ring = inner.ring().clone();
        let file = new_file();
        let write = {
            let (ring, file) = (ring.clone(), file.clone());
            async move { ring.write(&file, 0, &[filled(4096, 9)], Durability::Durable).await }
        };
        assert!(matches!(race(write, yield_now()).await, Either::Right(())));
        // A read that nobody answers: its buffer is the ring's until the ring ends.
        let (reader, _writer) = std::io::pipe().unwrap();
        let reader: File = Rc::new(std::os::fd::OwnedFd::from(reader));
        let receive = ring.receive(&reader, 512);
        assert!(matches!(
            race(receive, inner.sleep_until(after(&inner, 5))).await,
            Either::Right(())
        ));
        // Churn the memory and the slots.
        let others = (1..200).map(|index| -> device::LocalFuture<()> {
            let (ring, file) = (ring.clone(), file.clone());
            Box::pin(async move {
                ring.write(&file, index * 4096, &[filled(4096, 1)], Durability::Cached)
                    .await
                    .unwrap();
            })
        });
        join_all(others.collect()).await;
        ring.sync_data(&file).await.unwrap();
        let back = ring.read(&file, 0, 8192).await.unwrap();
        assert_eq!((back[0], back[4095], back[4096]), (9, 9, 1));
        std::mem::forget(_writer);
    });
    world.end();
}

fn timers_wake_in_their_order_and_not_early(io: IoChoice) {
    over(io, async move |inner| {
        let order = Rc::new(Cell::new(0));
        let begin = inner.now();
        let sleeps = [(30, 3), (10, 1), (20, 2)].map(|(milliseconds, place)| {
            let (world, order) = (inner.clone(), order.clone());
            spawn_with_result(&inner, async move {
                let at = begin.plus(Duration::from_millis(milliseconds));
                world.sleep_until(at).await;
                assert!(world.now() >= at);
                order.set(order.get() + 1);
                assert_eq!(order.get(), place);
            })
        });
        for sleep in sleeps {
            sleep.await.unwrap();
        }
        inner.sleep_until(Instant(0)).await;
    });
}

fn waiting_awake_also_ends_with_timers_and_completions(io: IoChoice) {
    over(io, async move |inner| {
        inner.expect_soon(true);
        let file = new_file();
        let at = inner.now().plus(Duration::from_micros(100));
        inner.sleep_until(at).await;
        inner.sleep_until(after(&inner, 2)).await;
        inner.ring().write(&file, 0, &[filled(4096, 1)], Durability::Durable).await.unwrap();
        inner.ring().sync_data(&file).await.unwrap();
        inner.expect_soon(false);
        assert_eq!(inner.ring().read(&file, 0, 512).await.unwrap()[0], 1);
    });
}

/// Starts a thread that answers each byte that comes through one pipe by one through the other,
/// until the first is closed.
fn answering_neighbour() -> (std::io::PipeReader, std::io::PipeWriter, std::thread::JoinHandle<()>)
{
    let (mut asked, question) = std::io::pipe().unwrap();
    let (answer, mut answered) = std::io::pipe().unwrap();
    let neighbour = std::thread::spawn(move || {
        let mut byte = [0];
        while asked.read(&mut byte).unwrap() > 0 {
            answered.write_all(&byte).unwrap();
        }
    });
    (answer, question, neighbour)
}

async fn ask_in_turns(ring: &Ring, rounds: u32) {
    let (mut answer, mut question, neighbour) = answering_neighbour();
    let watched: File = Rc::new(answer.try_clone().unwrap().into());
    let mut answers = ring.poll(&watched, libc::POLLIN);
    for _ in 0..rounds {
        question.write_all(&[1]).unwrap();
        answers.next().await.unwrap();
        answer.read_exact(&mut [0]).unwrap();
    }
    drop(question);
    neighbour.join().unwrap();
}

fn answers_that_come_soon_are_polled_for(io: IoChoice) {
    if std::thread::available_parallelism().unwrap().get() == 1 {
        return;
    }
    over(io, async move |inner| {
        let begin = inner.now();
        // Busy neighbours of the machine may keep a world from polling for a while.
        while inner.ring().statistics().polls == 0 {
            ask_in_turns(inner.ring(), 100).await;
            assert!(
                inner.now().since(begin) < Duration::from_secs(60),
                "{:?}",
                inner.ring().statistics()
            );
        }
        inner.poll_at_most(Duration::ZERO);
        let before = inner.ring().statistics();
        ask_in_turns(inner.ring(), 100).await;
        let after = inner.ring().statistics();
        assert_eq!(
            (after.polls, after.polls_in_vain),
            (before.polls, before.polls_in_vain),
            "forbidden"
        );
    });
}

fn what_was_only_sent_is_no_reason_to_poll(io: IoChoice) {
    over(io, async move |inner| {
        let null: File = Rc::new(OpenOptions::new().write(true).open("/dev/null").unwrap().into());
        for _ in 0..100 {
            inner.ring().send(&null, vec![1; 16], Vec::new(), None);
            inner.sleep_until(after(&inner, 3)).await;
        }
        let statistics = inner.ring().statistics();
        assert_eq!((statistics.polls, statistics.polls_in_vain), (0, 0), "{statistics:?}");
    });
}

fn an_idle_world_takes_no_processor_time(io: IoChoice) {
    let own_time = || {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is live.
        assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) }, 0);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    over(io, async move |inner| {
        ask_in_turns(inner.ring(), 100).await;
        for expected in [false, true] {
            inner.expect_soon(expected);
            let before = (own_time(), inner.ring().statistics().polls_in_vain);
            for _ in 0..50 {
                inner.sleep_until(after(&inner, 10)).await;
            }
            let polled = inner.ring().statistics().polls_in_vain - before.1;
            assert!(polled <= 8, "{polled} polls in vain");
            // Out of half a second.
            assert!(
                own_time() - before.0 < Duration::from_millis(50),
                "{:?}",
                own_time() - before.0
            );
        }
    });
}

fn tasks_that_never_rest_do_not_hold_up_the_ring(io: IoChoice) {
    let world = RealWorld::over(io).unwrap();
    let inner = world.clone();
    world.run(async move {
        inner.spawn(Box::pin(async {
            loop {
                yield_now().await;
            }
        }));
        inner.ring().write(&new_file(), 0, &[filled(512, 1)], Durability::Cached).await.unwrap();
        inner.sleep_until(after(&inner, 1)).await;
    });
    world.end();
}

fn a_poll_stream_reports_every_change(io: IoChoice) {
    over(io, async move |inner| {
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        let watched: File = Rc::new(reader.try_clone().unwrap().into());
        let mut changes = inner.ring().poll(&watched, libc::POLLIN);
        for round in 0..1000u32 {
            if round % 2 == 0 {
                yield_now().await;
            }
            writer.write_all(&[1]).unwrap();
            assert_eq!(changes.next().await.unwrap() & libc::POLLIN, libc::POLLIN);
            reader.read_exact(&mut [0]).unwrap();
        }
        drop(writer);
        while changes.next().await.unwrap() & libc::POLLHUP == 0 {}
    });
}

fn sent_messages_arrive_whole_and_failures_are_counted(io: IoChoice) {
    over(io, async move |inner| {
        let ring = inner.ring();
        let (mut reader, writer) = std::io::pipe().unwrap();
        let writer: File = Rc::new(writer.into());
        ring.send(&writer, b"head".to_vec(), Vec::new(), None);
        let body = Slice { buffer: filled(512, b'x'), range: 10..13 };
        ring.send(&writer, b"and".to_vec(), vec![body], None);
        ring.sync_data(&new_file()).await.unwrap();
        let mut text = [0; 10];
        reader.read_exact(&mut text).unwrap();
        assert_eq!(&text, b"headandxxx");
        let closed = OpenOptions::new().read(true).open("/dev/null").unwrap();
        ring.send(&Rc::new(closed.into()), b"lost".to_vec(), Vec::new(), None);
        while ring.statistics().failed_sends == 0 {
            ring.sync_data(&new_file()).await.unwrap();
        }
    });
}

fn a_message_sent_last_still_goes_out(io: IoChoice) {
    let (mut reader, writer) = std::io::pipe().unwrap();
    let world = RealWorld::over(io).unwrap();
    let ring = world.ring().clone();
    world.run(async move { ring.send(&Rc::new(writer.into()), b"bye".to_vec(), Vec::new(), None) });
    let mut text = [0; 3];
    reader.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"bye");
}

fn termination_signals_are_awaited(io: IoChoice) {
    runtime::block_signals().unwrap();
    over(io, async move |inner| {
        let mut signals = inner.signals().unwrap();
        let raise = |signal| {
            // SAFETY: the signal is blocked in this thread, to which alone raise(3) sends it.
            assert_eq!(unsafe { libc::raise(signal) }, 0);
        };
        assert!(matches!(
            race(signals.next(), inner.sleep_until(after(&inner, 1))).await,
            Either::Right(())
        ));
        raise(libc::SIGTERM);
        assert_eq!(signals.next().await.unwrap(), runtime::Signal::Terminate);
        raise(libc::SIGINT);
        assert_eq!(signals.next().await.unwrap(), runtime::Signal::Interrupt);
    });
}

fn an_interrupted_wait_goes_on(io: IoChoice) {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: the handler does nothing; the signal is sent to this thread alone.
    let thread = unsafe {
        libc::signal(libc::SIGUSR1, nothing as extern "C" fn(libc::c_int) as libc::sighandler_t);
        libc::pthread_self()
    };
    let sender = std::thread::spawn(move || {
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(1));
            // SAFETY: the receiving thread lives until it has joined this one.
            unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
        }
    });
    let world = RealWorld::over(io).unwrap();
    let inner = world.clone();
    world.run(async move { inner.sleep_until(after(&inner, 25)).await });
    sender.join().unwrap();
}

fn a_run_begins_with_the_time_that_has_passed_since_the_last(io: IoChoice) {
    const PAUSE: Duration = Duration::from_millis(20);
    let world = RealWorld::over(io).unwrap();
    let look = || {
        let inner = world.clone();
        world.run(async move { (inner.now(), inner.wall_clock()) })
    };
    let (before, wall_before) = look();
    std::thread::sleep(PAUSE);
    let (after, wall_after) = look();
    assert!(after.since(before) >= PAUSE);
    assert_ne!(wall_after, wall_before);
}

fn a_dropped_write_keeps_its_buffer_until_it_is_done(io: IoChoice) {
    over(io, async move |inner| {
        let (ring, file) = (inner.ring().clone(), new_file());
        let buffers: Vec<_> = (0..100).map(|byte| filled(4096, byte)).collect();
        for (index, buffer) in buffers.iter().enumerate() {
            let (ring, file, parts) = (ring.clone(), file.clone(), [buffer.clone()]);
            let write = async move {
                ring.write(&file, index as u64 * 4096, &parts, Durability::Durable).await
            };
            assert!(matches!(race(write, std::future::ready(())).await, Either::Right(())));
        }
        // None is done before the world's loop has taken its completion, which it has not.
        assert!(buffers.iter().all(|buffer| Rc::strong_count(buffer) == 2));
        while buffers.iter().any(|buffer| Rc::strong_count(buffer) > 1) {
            inner.sleep_until(after(&inner, 1)).await;
        }
        let back = ring.read(&file, 0, 100 * 4096).await.unwrap();
        assert!(back.chunks(4096).enumerate().all(|(byte, block)| block == [byte as u8; 4096]));
    });
}
