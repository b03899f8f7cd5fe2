//! Resource usage of processes from `/proc`: CPU time and memory.

use std::time::Duration;

/// CPU time of a process since its start; `None` if it is gone.
pub fn cpu_time(pid: u32) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program name is in parentheses and may contain any character.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    // Counted from 1 in proc(5): utime is the 14th field, stime the 15th; the name was the 2nd.
    let ticks = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    let per_second = rustix::param::clock_ticks_per_second();
    Some(Duration::from_secs_f64(ticks as f64 / per_second as f64))
}

/// Resident memory now, in bytes.
pub fn resident(pid: u32) -> Option<u64> {
    status_bytes(pid, "VmRSS:")
}

/// Peak resident memory, in bytes.
pub fn resident_peak(pid: u32) -> Option<u64> {
    status_bytes(pid, "VmHWM:")
}

fn status_bytes(pid: u32, field: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_reads_its_own_costs() {
        let pid = std::process::id();
        assert!(cpu_time(pid).is_some());
        assert!(resident(pid).unwrap() > 1_000_000);
        assert!(resident_peak(pid).unwrap() >= resident(pid).unwrap() / 2);
        assert_eq!(cpu_time(u32::MAX), None);
    }
}
