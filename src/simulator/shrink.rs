//! Makes a failing plan smaller: leaves out steps as long as it still fails in the same way.

use crate::batch;
use crate::plan::{Given, Plan};

/// Prints the smallest plan that was found, and the command that replays it. Returns false if the seed fails.
pub fn shrink(seed: u64, given: Given) -> bool {
    let Some(anomaly) = failure(seed, given, &[]) else {
        println!("seed {seed} does not fail");
        return true;
    };
    let steps = Plan::draw(seed, given).steps.len();
    let mut left_out: Vec<usize> = Vec::new();
    let mut size = steps.div_ceil(2);
    loop {
        let mut begin = 0;
        while begin < steps {
            let part: Vec<usize> = (begin..(begin + size).min(steps))
                .filter(|step| !left_out.contains(step))
                .collect();
            let mut tried = [&left_out[..], &part[..]].concat();
            tried.sort_unstable();
            if !part.is_empty() && failure(seed, given, &tried).as_ref() == Some(&anomaly) {
                left_out = tried;
            }
            begin += size;
        }
        if size <= 1 {
            break;
        }
        size /= 2;
    }
    println!(
        "seed {seed}: {anomaly}; {} of {steps} steps are enough:",
        steps - left_out.len()
    );
    print!("{}", Plan::draw(seed, given).without(&left_out));
    let numbers: Vec<String> = left_out.iter().map(ToString::to_string).collect();
    let options = [&["--trace"], &given.options()[..]].concat().join(" ");
    println!(
        "simulate seed {seed} {options} --without {}",
        numbers.join(",")
    );
    false
}

/// Returns the first anomaly of a run.
fn failure(seed: u64, given: Given, without: &[usize]) -> Option<String> {
    let shown = batch::run(seed, given, without);
    let first = shown.first_failure()?;
    Some(match shown.violations.is_empty() {
        true => "broken".to_owned(),
        false => first.split(':').next().unwrap_or(&first).to_owned(),
    })
}
