<?php
// Producers as the articles about such systems show them.
//
// Arguments: which system, port of Redis, DSN of the database, number of jobs. Output: JSON of what was written.

[, $system, $port, $dsn, $count] = $argv + [4 => '3'];
$redis = new Redis();
$redis->connect('127.0.0.1', (int) $port);
$pdo = new PDO($dsn, 'root', '', [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION]);
$written = [];

/** A row with the serialized task, and its id in the sorted set. */
function addDelayQueue(Redis $redis, PDO $pdo, string $params, int $delay, int $retryTimes = 0, int $status = 1): array
{
    $insert = $pdo->prepare('INSERT INTO delay_queue (params, retry_times, status, created) VALUES (?, ?, ?, NOW())');
    $insert->execute([$params, $retryTimes, $status]);
    $id = $pdo->lastInsertId();
    $time = time() + $delay;
    $redis->zAdd('delay_queue_job', $time, $id);
    return ['id' => $id, 'due' => $time * 1000];
}

switch ($system) {
    case 'seed000':
        $pdo->exec("CREATE TABLE `delay_queue` ( `id` int(10) unsigned NOT NULL AUTO_INCREMENT, `params` varchar(512) DEFAULT NULL, `message` varchar(255) DEFAULT '' COMMENT '执行结果', `ext_string` varchar(255) DEFAULT '', `retry_times` int(2) DEFAULT '0', `status` int(2) NOT NULL DEFAULT '1' COMMENT '1 待执行, 10 执行成功, 20 执行失败,30取消执行', `created` datetime DEFAULT NULL, `modified` datetime DEFAULT NULL, PRIMARY KEY (`id`), KEY `ext_idx` (`ext_string`) ) ENGINE=InnoDB DEFAULT CHARSET=utf8");
        $mail = serialize(['class' => 'App\\Service\\Mail', 'method' => 'send', 'data' => ['uid' => 7, 'name' => '王', 'list' => [1, 2.5, true, null]]]);
        $written[] = addDelayQueue($redis, $pdo, $mail, 3600);
        $written[] = addDelayQueue($redis, $pdo, serialize(['class' => '\\Order', 'method' => 'close', 'data' => 42]), 60, 3);
        $written[] = addDelayQueue($redis, $pdo, $mail, 60, 0, 10);
        $written[] = addDelayQueue($redis, $pdo, serialize(['class' => 'Order', 'method' => 'close', 'data' => new ArrayObject([1])]), 60);
        $written[] = addDelayQueue($redis, $pdo, substr($mail, 0, 40), 60);
        $redis->zAdd('delay_queue_job', time() + 60, '999999');
        break;
    case 'seed001':
        foreach (range(1, (int) $count) as $n) {
            $time = time() + 3600 + $n;
            $orderId = uniqid();
            $redis->zAdd('order', $time, $orderId);
            $written[] = ['id' => $orderId, 'due' => $time * 1000];
        }
        $time = time() + 30;
        $data = json_encode(['order_id' => 1, 'order_uniqid' => uniqid()]);
        $redis->zAdd('order', $time, $data);
        $written[] = ['id' => $data, 'due' => $time * 1000];
        break;
    case 'seed002':
        date_default_timezone_set('Asia/Shanghai');
        $pdo->exec("CREATE TABLE `jobs` ( `id` BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, `payload` JSON NOT NULL, `status` ENUM('pending', 'processing', 'failed', 'completed') NOT NULL DEFAULT 'pending', `attempts` TINYINT UNSIGNED NOT NULL DEFAULT 0, `available_at` DATETIME NOT NULL, `created_at` DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP, `updated_at` DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, INDEX `idx_status_available` (`status`, `available_at`)) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4");
        $insert = $pdo->prepare('INSERT INTO jobs (payload, status, available_at, attempts) VALUES (?, ?, ?, ?)');
        $jobs = [
            ['send_welcome_email', ['user_id' => 456, 'email' => 'test@example.com'], 'pending', 0, 0],
            ['generate_report', ['report_id' => 789], 'pending', 60, 2],
            ['generate_report', ['report_id' => 1], 'completed', 60, 1],
        ];
        foreach ($jobs as [$type, $data, $status, $delay, $attempts]) {
            $time = time() + $delay;
            $payload = json_encode(['type' => $type, 'data' => $data]);
            $insert->execute([$payload, $status, date('Y-m-d H:i:s', $time), $attempts]);
            $written[] = ['id' => $pdo->lastInsertId(), 'due' => $time * 1000, 'payload' => $payload];
        }
        break;
    case 'seed003':
        $pdo->exec("CREATE TABLE old_tasks ( `id` int(10) unsigned NOT NULL AUTO_INCREMENT, `key` varchar(255) CHARACTER SET utf8 COLLATE utf8_bin NOT NULL, `status` tinyint(3) unsigned NOT NULL, `start_time` decimal(13,3) unsigned NOT NULL, `end_time` decimal(13,3) unsigned NOT NULL, `sts` tinyint(3) unsigned NOT NULL DEFAULT 0, PRIMARY KEY (`id`), KEY `we` (`key`) USING BTREE ) ENGINE=InnoDB DEFAULT CHARSET=utf8");
        $insert = $pdo->prepare('INSERT INTO old_tasks (`key`, status, start_time, end_time, sts) VALUES (?, ?, ?, ?, ?)');
        foreach ([['AuctionCutDown@auctionEndCutDown@218', 0, 3600250, 0], ['AuctionCutDown@dealCutDown@9', 1, 60000, 0], ['AuctionCutDown@dealCutDown@10', 0, 60000, 1]] as [$key, $status, $ms, $sts]) {
            $now = (int) (microtime(true) * 1000);
            $decimal = fn (int $time) => sprintf('%d.%03d', intdiv($time, 1000), $time % 1000);
            [$current, $end] = [$decimal($now), $decimal($now + $ms)];
            $insert->execute([$key, $status, $current, $end, $sts]);
            if ($status == 0 && $sts == 0) {
                $redis->pSetEx($key, $ms, '');
            }
            $written[] = ['id' => $key, 'due' => $now + $ms];
        }
        $redis->setEx('AuctionCutDown@bare@7', 1800, '');
        $written[] = ['id' => 'AuctionCutDown@bare@7', 'due' => (time() + 1800) * 1000];
        $redis->setEx('session:42', 1800, 'user@example');
        break;
    case 'seed004':
        $now = time();
        foreach ([[5, 0], [3600 * 2 + 20, 2], [3600 * 2 + 20, 2]] as [$delay, $rounds]) {
            $slot = ($now + $delay) % 3600;
            $data = ['method' => 'send_msg', 'params' => ['uid' => $delay, 'msg' => "No: $delay"], 'cycle_num' => $rounds];
            $redis->rPush('task_' . $slot, json_encode($data));
            $written[] = ['id' => $slot, 'due' => ($now + $delay) * 1000];
        }
        $redis->rPush('task_7', 'delete');
        break;
}
echo json_encode($written), PHP_EOL;
