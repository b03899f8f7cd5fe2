<?php
// Schedules the end of an order, and closes orders that are due.

$lapsed = new Redis();
$lapsed->connect(getenv('LAPSED_SOCKET'));
$lapsed->setex('Order@close@' . time(), 2, '{"by": "php"}');
while (true) {
    $tasks = $lapsed->rawCommand('LAPSED.TAKE', 'orders', 'BLOCK', '2000', 'WORKER', 'php');
    if ($tasks === false) {
        throw new RuntimeException($lapsed->getLastError());
    }
    foreach ($tasks as $flat) {
        $task = array_column(array_chunk($flat, 2), 1, 0);
        echo "php: closing {$task['key']}\n";
        $lapsed->rawCommand('LAPSED.DONE', $task['claim']);
    }
}
