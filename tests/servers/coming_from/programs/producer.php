<?php
// The programs of owners, with the commands that they have today. Standard input: JSON of what they do, in order. Output: JSON
// of what each has written.
//
// Arguments: port of Redis, DSN of the database.

[, $port, $dsn] = $argv;
$redis = new Redis();
$redis->connect('127.0.0.1', (int) $port);
$pdo = new PDO($dsn, 'root', '', [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION]);

/** Sets and tables of the four designs. */
$does = [
    // A row with the serialized call, and its id in a sorted set.
    'row.tables' => function () use ($pdo) {
        $pdo->exec("CREATE TABLE `delay_queue` ( `id` int(10) unsigned NOT NULL AUTO_INCREMENT, `params` varchar(512) DEFAULT NULL, `message` varchar(255) DEFAULT '', `ext_string` varchar(255) DEFAULT '', `retry_times` int(2) DEFAULT '0', `status` int(2) NOT NULL DEFAULT '1', `created` datetime DEFAULT NULL, `modified` datetime DEFAULT NULL, PRIMARY KEY (`id`), KEY `ext_idx` (`ext_string`) ) ENGINE=InnoDB DEFAULT CHARSET=utf8");
    },
    'row.add' => function ($what) use ($pdo, $redis) {
        $params = serialize(['class' => 'App\\Job', 'method' => 'run', 'data' => $what['name']]);
        $insert = $pdo->prepare('INSERT INTO delay_queue (params, ext_string, retry_times, status, created) VALUES (?, ?, 0, 1, ?)');
        $insert->execute([$params, $what['name'], date('Y-m-d H:i:s')]);
        $id = $pdo->lastInsertId();
        $time = time() + $what['delay'];
        $redis->zAdd('delay_queue_job', $time, $id);
        return ['id' => $id, 'due_s' => $time];
    },
    'row.move' => function ($what) use ($redis) {
        $time = time() + $what['delay'];
        $redis->zAdd('delay_queue_job', $time, $what['id']);
        return ['due_s' => $time];
    },
    'row.cancel' => function ($what) use ($pdo, $redis) {
        $select = $pdo->prepare('SELECT id FROM delay_queue WHERE ext_string = ?');
        $select->execute([$what['name']]);
        $id = $select->fetchColumn();
        $redis->zRem('delay_queue_job', $id);
        $pdo->prepare('UPDATE delay_queue SET status = 30 WHERE id = ?')->execute([$id]);
    },
    // The member of a sorted set is all there is.
    'member.add' => function ($what) use ($redis) {
        $time = time() + $what['delay'];
        $redis->zAdd('order', $time, $what['name']);
        return ['due_s' => $time];
    },
    'member.cancel' => function ($what) use ($redis) {
        return ['removed' => $redis->zRem('order', $what['name'])];
    },
    // A row of JSON, in the local time of this program.
    'job.tables' => function () use ($pdo) {
        $pdo->exec("CREATE TABLE `jobs` ( `id` BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, `payload` JSON NOT NULL, `status` ENUM('pending', 'processing', 'failed', 'completed') NOT NULL DEFAULT 'pending', `attempts` TINYINT UNSIGNED NOT NULL DEFAULT 0, `available_at` DATETIME NOT NULL, `created_at` DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP, `updated_at` DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, INDEX `idx_status_available` (`status`, `available_at`)) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4");
    },
    'job.add' => function ($what) use ($pdo) {
        date_default_timezone_set('Asia/Shanghai');
        $insert = $pdo->prepare('INSERT INTO jobs (payload, status, available_at) VALUES (?, ?, ?)');
        $time = time() + $what['delay'];
        $payload = json_encode(['type' => 'send_welcome_email', 'data' => ['name' => $what['name']]]);
        $insert->execute([$payload, 'pending', date('Y-m-d H:i:s', $time)]);
        return ['due_s' => $time, 'id' => $pdo->lastInsertId()];
    },
    'job.cancel' => function ($what) use ($pdo) {
        $pdo->prepare('DELETE FROM jobs WHERE id = ?')->execute([$what['id']]);
    },
    'job.leave' => function ($what) use ($pdo) {
        $pdo->prepare("UPDATE jobs SET status = 'processing', attempts = attempts + 1 WHERE id = ?")->execute([$what['id']]);
    },
    // The statement of docs/scheduling.md, with the values of this task.
    'job.schedule' => function ($what) use ($pdo) {
        $payload = json_encode(['type' => 'send_welcome_email', 'data' => ['name' => $what['name']]]);
        $pdo->exec(strtr($what['sql'], [
            'Order@close@43' => 'Job@send_welcome_email@' . $what['name'], '1800' => (string) $what['delay'],
            '{"amount": 5}' => $payload,
        ]));
        return ['due_s' => time() + $what['delay']];
    },
    'job.unschedule' => function ($what) use ($pdo) {
        $pdo->prepare('UPDATE tb_time_limit_task SET sts = 1 WHERE `key` = ?')
            ->execute(['Job@send_welcome_email@' . $what['name']]);
    },
    // A list for each second of the hour.
    'entry.add' => function ($what) use ($redis) {
        $now = time();
        $slot = ($now + $what['delay']) % 3600;
        $rounds = intdiv($what['delay'], 3600);
        // After an exact number of hours the slot is the one that was just visited.
        $cycle = $what['delay'] > 0 && $what['delay'] % 3600 === 0 ? $rounds - 1 : $rounds;
        $data = ['method' => 'send_msg', 'params' => ['uid' => $what['name'], 'msg' => "No:{$what['name']}"], 'cycle_num' => $cycle];
        $redis->rPush('task_' . $slot, json_encode($data));
        return ['due_s' => $now + $what['delay']];
    },
];
$written = [];
foreach (json_decode(stream_get_contents(STDIN), true, 64, JSON_THROW_ON_ERROR) as $what) {
    $written[] = $does[$what['do']]($what) ?? new stdClass();
}
echo json_encode($written), PHP_EOL;
