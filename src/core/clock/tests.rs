use super::*;

#[tokio::test(start_paused = true)]
async fn the_clock_runs_with_monotonic_time() {
    let clock = LedgerClock::starting_at(UnixMs(1000));
    tokio::time::advance(Duration::from_millis(250)).await;
    assert_eq!(clock.now(), UnixMs(1250));
    assert_eq!(
        clock.instant_of(UnixMs(1350)),
        Instant::now() + Duration::from_millis(100)
    );
    assert_eq!(clock.instant_of(UnixMs(5)), Instant::now());
}

#[tokio::test(start_paused = true)]
async fn the_time_of_an_instant_is_not_later_than_what_was_read_after_it() {
    let clock = LedgerClock::starting_at(UnixMs(1000));
    let before = Instant::now();
    tokio::time::advance(Duration::from_micros(900)).await;
    let (instant, read) = (Instant::now(), clock.now());
    tokio::time::advance(Duration::from_micros(300)).await;
    assert_eq!((clock.at(instant), read), (UnixMs(1000), UnixMs(1000)));
    clock.observe_us(2_000_000, Instant::now());
    assert_eq!(clock.at(before), UnixMs(1998), "1.2 ms before the reading");
    clock.set(UnixMs(500));
    assert_eq!(clock.at(instant), UnixMs(500));
}

#[tokio::test(start_paused = true)]
async fn the_first_reading_of_another_server_counts() {
    let clock = LedgerClock::estimated_at(UnixMs(0));
    clock.observe_us(1_000_000, Instant::now());
    tokio::time::advance(Duration::from_millis(100)).await;
    let asked = Instant::now();
    tokio::time::advance(Duration::from_millis(100)).await;
    clock.observe_us(1_140_000, asked);
    assert_eq!(clock.now(), UnixMs(1_200), "less exact than what is known");
    clock.distrust();
    clock.observe_us(1_140_000, asked);
    assert_eq!(clock.now(), UnixMs(1_190));
}

#[tokio::test(start_paused = true)]
async fn a_coarse_reading_that_contradicts_the_estimate_counts() {
    let clock = LedgerClock::estimated_at(UnixMs(0));
    clock.observe_us(1_000_000, Instant::now());
    assert!(
        !clock.has_stepped_within(Duration::MAX),
        "the first reading"
    );
    let asked = Instant::now();
    tokio::time::advance(Duration::from_millis(400)).await;
    clock.observe_us(900_000, asked);
    assert_eq!(clock.now(), UnixMs(1_400), "200 ms is its own error");
    clock.observe_us(6_200_000, asked);
    assert_eq!(clock.now(), UnixMs(6_400));
    assert!(clock.has_stepped_within(Duration::from_millis(1)));
    tokio::time::advance(Duration::from_secs(2)).await;
    assert!(!clock.has_stepped_within(Duration::from_secs(2)));
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_was_set_is_frozen() {
    let clock = LedgerClock::frozen_at(UnixMs(1000));
    tokio::time::advance(Duration::from_millis(250)).await;
    clock.observe_us(5_000_000, Instant::now());
    assert_eq!(clock.now(), UnixMs(1000));
    clock.set(UnixMs(900));
    assert_eq!(
        (clock.now(), clock.lower_bound()),
        (UnixMs(900), UnixMs(900))
    );
}

#[tokio::test(start_paused = true)]
async fn the_more_exact_reading_wins_until_it_is_old() {
    let clock = LedgerClock::estimated_at(UnixMs(0));
    let asked = Instant::now();
    tokio::time::advance(Duration::from_millis(2)).await;
    clock.observe_us(10_001_000, asked);
    assert_eq!(clock.now(), UnixMs(10_002));
    assert_eq!(
        clock.lower_bound(),
        UnixMs(10_001),
        "it may be wrong by half the round trip"
    );
    let wait = Duration::from_millis(9);
    assert_eq!(clock.instant_of(UnixMs(10_010)), Instant::now() + wait);

    let asked = Instant::now();
    tokio::time::advance(Duration::from_millis(400)).await;
    clock.observe_us(10_000_000, asked);
    assert_eq!(
        clock.now(),
        UnixMs(10_402),
        "a slow answer does not replace a quick one"
    );

    tokio::time::advance(Duration::from_secs(3600)).await;
    let asked = Instant::now();
    tokio::time::advance(Duration::from_millis(400)).await;
    clock.observe_us(5_000_000_000, asked);
    assert_eq!(clock.now(), UnixMs(5_000_200), "an hour later it does");
}

#[tokio::test(start_paused = true)]
async fn an_estimate_is_not_trusted_after_the_wall_clock_has_jumped() {
    let clock = LedgerClock::estimated_at(UnixMs(0));
    clock.observe_us(1_000_000, Instant::now());
    assert!(!clock.has_jumped());
    // The wall clock does not follow: as if it was set back.
    tokio::time::advance(2 * JUMP_MIN).await;
    assert!(clock.has_jumped());
    let asked = Instant::now();
    tokio::time::advance(Duration::from_millis(100)).await;
    clock.distrust();
    clock.observe_us(9_000_000, asked);
    assert_eq!((clock.now(), clock.has_jumped()), (UnixMs(9_050), false));
}

#[tokio::test(start_paused = true)]
async fn the_age_of_a_moment_counts_the_time_of_a_suspension() {
    let moment = Moment::now();
    tokio::time::advance(Duration::from_millis(300)).await;
    assert_eq!(moment.age(), Duration::from_millis(300));
    let before_suspension = Moment {
        wall_us: moment.wall_us - 60_000_000,
        ..moment
    };
    assert!(before_suspension.age() >= Duration::from_secs(60));
}

#[tokio::test(start_paused = true)]
async fn the_clock_of_a_file_is_the_wall_clock() {
    let clock = LedgerClock::wall();
    let (before, now, after) = (wall(), clock.now(), wall());
    assert!(before <= now && now <= after, "{before} {now} {after}");
    // The monotonic clock runs ahead: as if the wall clock was set back.
    tokio::time::advance(Duration::from_secs(60)).await;
    assert!(clock.now().since(now) < Duration::from_secs(60));
    let soon = Instant::now() + Duration::from_secs(5);
    let shown = clock.at(soon).since(clock.now());
    assert!(shown <= Duration::from_secs(5) && shown >= Duration::from_millis(4_900));
    clock.observe_us(5, Instant::now());
    assert!(clock.now() >= now, "it takes no readings");
}

#[tokio::test(start_paused = true)]
async fn a_step_of_the_clock_is_told_for_ten_minutes_unless_it_is_taken_back() {
    const START_US: i64 = 1_795_291_200_000_000;
    let clock = LedgerClock::estimated_at(UnixMs(0));
    let read = |reading_us: i64| clock.observe_us(reading_us, Instant::now());
    read(START_US);
    assert_eq!(clock.latest_step(), None, "the first reading is no step");
    read(START_US + 200_000);
    assert_eq!(clock.latest_step(), None, "less than a second is no step");
    read(START_US + 3_600_000_000);
    let step = clock.latest_step().unwrap();
    assert!(
        step.is_ahead && step.by > Duration::from_secs(3_590),
        "{step:?}"
    );
    read(START_US);
    assert_eq!(clock.latest_step(), None, "it was set right");
    read(START_US - 60_000_000);
    let step = clock.latest_step().unwrap();
    assert!(
        !step.is_ahead && step.by > Duration::from_secs(55),
        "{step:?}"
    );
    tokio::time::advance(Duration::from_secs(601)).await;
    assert_eq!(clock.latest_step(), None, "it is long ago");
}
