<?php
// A pull worker. Needs the extension redis:  php worker.php [host:port]

[$host, $port] = explode(':', $argv[1] ?? '127.0.0.1:6380');
$lapsed = new Redis();
$lapsed->connect($host, (int) $port, 0, null, 0, 10); // replies come within 10 s, BLOCK included

final class Permanent extends Exception {}

/** Throws an exception to fail. Returns the result, which `lapsed show` prints. */
function work(array $task): array
{
    $mail = json_decode($task['payload'] ?? '{}', true, flags: JSON_THROW_ON_ERROR);
    if (isset($mail['error'])) {
        throw new Permanent($mail['error']);
    }
    return ['sent_to' => $task['args']];
}

while (true) {
    $taken = $lapsed->rawCommand('LAPSED.TAKE', 'mail', 'COUNT', '10', 'BLOCK', '5000', 'WORKER', 'php');
    if ($taken === false) {
        throw new RuntimeException($lapsed->getLastError());
    }
    $tasks = array_map(fn (array $flat) => array_column(array_chunk($flat, 2), 1, 0), $taken);
    foreach ($tasks as $at => $task) {
        // One thread: no task may take longer than `visibility`. Before each, the leases of those left are renewed.
        $lapsed->rawCommand('LAPSED.RENEW', ...array_column(array_slice($tasks, $at), 'claim'));
        try {
            $report = ['LAPSED.DONE', $task['claim'], 'RESULT', json_encode(work($task), JSON_THROW_ON_ERROR)];
        } catch (Throwable $error) {
            $report = ['LAPSED.FAIL', $task['claim'], $error->getMessage()];
            $error instanceof Permanent && $report[] = 'PERMANENT';
        }
        $lapsed->rawCommand(...$report) || fwrite(STDERR, $lapsed->getLastError() . "\n");
        echo $task['key'], ' ', $report[0], "\n";
    }
}
