<?php

declare(strict_types=1);

// Works off the list of a `list` route:  php list.php [how many, then end]
// A task that is taken is no longer in Redis: a worker that dies loses it. Where that matters, take a stream.

require __DIR__ . '/tasks.php';

const LIST_KEY = 'lapsed:mails';

$redis = connect_redis();
for ($left = (int) ($argv[1] ?? PHP_INT_MAX); $left > 0;) {
    $taken = $redis->brPop([LIST_KEY], 2);
    if ($taken) {
        run_once($redis, json_decode($taken[1], true, flags: JSON_THROW_ON_ERROR));
        $left--;
    }
}
