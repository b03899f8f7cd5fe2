<?php
// Completes a task in a transaction. Arguments: host, port, user, password, database, claim. Prints what came of it.

const COMPLETE = <<<'SQL'
    UPDATE tb_time_limit_task
       SET status = 1, finished_at = UNIX_TIMESTAMP() + MICROSECOND(NOW(3)) * 0.000001, lease_until = 0, last_error = NULL
     WHERE id = ? AND end_time = CAST(? AS SIGNED) / 1000 AND owner = UNHEX(?)
       AND status = 0 AND recurrence IS NULL
    SQL;

[, $host, $port, $user, $password, $database, $claim] = $argv;
$db = new PDO("mysql:host=$host;port=$port;dbname=$database", $user, $password, [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION]);
[$row, $due, $owner] = explode('-', explode('.', $claim)[0]);
$complete = $db->prepare(COMPLETE);

$db->beginTransaction();
$db->prepare("INSERT INTO effects (name, task) VALUES ('php', ?)")->execute([substr($claim, 0, 64)]);
$complete->execute([$row, $due, $owner]);
if ($complete->rowCount() === 1) {
    $db->commit();
    echo "committed\n";
} else {
    $db->rollBack();
    echo "lost\n";
}
