<?php

declare(strict_types=1);

/** By hand:  php schedule.php create 42 30   |   cancel 42   |   ttl 42   |   state 42 */

require_once __DIR__ . '/connections.php';
require_once __DIR__ . '/AuctionCutDown.php';

[, $command, $id, $seconds] = $argv + [1 => 'help', 2 => '0', 3 => '30'];
$id = (int) $id;
if ($id <= 0) {
    fwrite(STDERR, "usage: php schedule.php create ID [SECONDS] | cancel ID | ttl ID | state ID\n");
    exit(2);
}

$db = connect_db();
$tasks = new AuctionCutDown($db, connect_redis());
switch ($command) {
    case 'create':
        $db->prepare('INSERT IGNORE INTO tb_auction_goods (id) VALUES (?)')->execute([$id]);
        $tasks->auction_end_countdown_create($id, (int) $seconds);
        break;
    case 'cancel':
        $tasks->auction_end_countdown_delete($id);
        break;
    case 'ttl':
        echo $tasks->getPTTL('auctionEndCutDown', [$id]), "\n";
        break;
    case 'state':
        $find = $db->prepare('SELECT state FROM tb_auction_goods WHERE id = ?');
        $find->execute([$id]);
        $state = $find->fetchColumn();
        echo $state === false ? 'unknown' : AuctionState::from((int) $state)->name, "\n";
        break;
    default:
        fwrite(STDERR, "no such command: $command\n");
        exit(2);
}
