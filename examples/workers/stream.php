<?php

declare(strict_types=1);

// Works off the stream of a `stream` route:  php stream.php [how many, then end]
// Any number of these may run: each task goes to one of them, and comes to another if that one dies.

require __DIR__ . '/tasks.php';

const STREAM = 'lapsed:orders';
const GROUP = 'workers';
const ABANDONED_MS = 60_000; // longer than any task takes

$left = (int) ($argv[1] ?? PHP_INT_MAX);
$me = gethostname() . ':' . getmypid();
$redis = connect_redis();
// From the beginning of the stream; a group that is there stays as it is.
$redis->xGroup('CREATE', STREAM, GROUP, '0', true);

while ($left > 0) {
    // What another worker took and never acknowledged; else what is new, and up to two seconds for something to come.
    $entries = [];
    // By hand: phpredis has xAutoClaim from version 6 on.
    $claimed = $redis->rawCommand('XAUTOCLAIM', STREAM, GROUP, $me, (string) ABANDONED_MS, '0-0', 'COUNT', '1');
    foreach (array_filter($claimed[1] ?? []) as [$entry, $flat]) {
        $entries[$entry] = array_column(array_chunk($flat, 2), 1, 0);
    }
    if ($entries === []) {
        $entries = $redis->xReadGroup(GROUP, $me, [STREAM => '>'], 1, 2000)[STREAM] ?? [];
    }
    foreach ($entries as $entry => $fields) {
        run_once($redis, json_decode($fields['task'], true, flags: JSON_THROW_ON_ERROR));
        // Only now: whoever dies before this leaves the task to another worker.
        $redis->xAck(STREAM, GROUP, [$entry]);
        $left--;
    }
}
